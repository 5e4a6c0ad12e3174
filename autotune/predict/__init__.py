"""Facts and a configuration to peak memory and recompute time, without torch.

``formulas.py`` evaluates sizes. ``partition.py`` splits a graph as torch's default partitioner does, and puts a
backward that recomputes in order (the worker's own as well). ``lifetimes.py`` runs through the two halves and adds up
what is alive. ``simulation.py`` puts a configuration through all of them. ``prediction.py`` refuses where that would
not hold, and reads what two versions of a script are compared by. ``course.py`` has every moment of a step, and which
block makes a storage. Every operator runs by itself here, as under ``aot``; what a compiler fuses is told apart by its
trials.
"""
