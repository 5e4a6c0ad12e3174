"""The memory optimizer on AOTAutograd's joint graphs: stashes, clusters, layers, and the partitioner that applies plans.

``joint.py`` reads a joint graph, ``clusters.py`` groups what it stashes into clusters, ``layers.py`` finds repeated
blocks, ``partition.py`` tags the chosen subgraphs and splits the graph.
"""
