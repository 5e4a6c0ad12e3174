"""The memory optimizer on AOTAutograd's joint graphs: stashes, clusters, layers, and the partitioner for plans.

``joint.py`` reads a joint graph, ``repeatable.py`` tells what of it can be run again, ``clusters.py`` groups what it
stashes into clusters, ``layers.py`` finds repeated blocks, ``partition.py`` tags the chosen subgraphs and has torch
split it into a pair of halves (``graph_pair.py``, run by ``code.py``), ``redrawing.py`` lets its random operators draw
what they drew before, ``order.py`` puts a backward that recomputes in order. ``activation_graph.py`` writes it down as
plain data.
"""
