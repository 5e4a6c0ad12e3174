"""Time and memory of a trial, as the training process sees them.

``peaks.py`` reads the allocator. ``memory_split.py`` tells what the memory holds between two steps,
``memory_matrix.py`` what it holds at each phase of one, ``saved_tensors.py`` what autograd keeps for the backward.
"""
