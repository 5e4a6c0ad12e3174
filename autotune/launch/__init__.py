"""The controller's side of a run: start it, watch it, measure its memory, end it, and say how it ended.

``port.py`` is the seam that scheduling sees; ``process.py`` is what stands behind it. No torch in here.
"""
