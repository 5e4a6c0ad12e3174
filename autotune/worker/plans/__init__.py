"""The memory optimizer on AOTAutograd's joint graphs: stashes, clusters, layers, and the partitioner for plans.

``joint.py`` reads a joint graph, ``repeatable.py`` tells what of it can be run again, ``clusters.py`` groups what it
stashes into clusters, ``layers.py`` finds repeated blocks. ``partition.py`` tags the chosen subgraphs and has torch
split the graph into a pair of halves, which ``graph_pair.py`` runs. ``redrawing.py`` lets random operators draw what
they drew before. ``activation_graph.py`` writes the graph down as plain data.
"""
