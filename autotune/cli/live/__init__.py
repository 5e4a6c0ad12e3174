"""The live display of a study.

``display.py`` hears what happens and prints the lines that stay, some of which ``lines.py`` words. ``status.py`` has
the line below them that moves, on a terminal.
"""
