"""The live display of a study.

``display.py`` hears what happens and prints the lines that stay. ``status.py`` has the line below them that moves, on a
terminal.
"""
