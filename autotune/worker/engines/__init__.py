"""Engines, which run the model and apply plans.

``eager`` is no engine: the script untouched. ``port.py`` is what a run needs of any engine. ``plan_engine.py`` is what
those share that partition AOTAutograd's graphs (``graphs.py``): its ``AotEngine`` runs the two halves as they are,
``inductor.py`` has Inductor compile them. ``ortmodule.py`` runs the model in ONNX Runtime.
"""
