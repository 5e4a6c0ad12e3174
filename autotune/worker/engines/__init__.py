"""What runs the model and applies plans.

``eager`` is no engine: the script untouched. ``engine.py`` is what the engines share: ``aot.py`` runs AOTAutograd's two
graphs as they are, with plans; ``inductor.py`` has Inductor compile them. ``graphs.py`` are those graphs.
"""
