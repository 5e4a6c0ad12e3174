"""What runs the model and applies plans.

``eager`` is no engine: the script untouched. ``aot.py`` runs AOTAutograd's two graphs as they are, with plans;
``graphs.py`` are those graphs.
"""
