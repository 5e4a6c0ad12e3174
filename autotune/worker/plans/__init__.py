"""The memory optimizer on AOTAutograd's joint graphs: stashes, clusters, layers, and the partitioner for plans.

``joint.py`` reads a joint graph, ``repeatable.py`` tells what of it can be run again, ``clusters.py`` groups what it
stashes into clusters, ``layers.py`` finds repeated blocks, ``partition.py`` tags the chosen subgraphs and has torch
split it into a pair of halves, a backward that recomputes put in order (``graph_pair.py`` runs the pair).
``redrawing.py`` lets its random operators draw what they drew before. ``activation_graph.py`` writes the graph down as
plain data.
"""
