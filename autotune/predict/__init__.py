"""Facts and a configuration to peak memory and recompute time, without torch.

``formulas.py`` evaluates sizes. ``partition.py`` splits a graph as torch's default partitioner does, and puts a
backward that recomputes in order. ``lifetimes.py`` runs through the two halves and adds up what is alive.
``simulation.py`` puts a configuration through all of them. ``prediction.py`` refuses where that would not hold.
``memory_timeline.py`` has every moment of a step. Every operator runs by itself here, as under ``aot``.
"""
