"""Code that runs inside the training process: it needs Python >= 3.11 and torch, nothing else.

``__main__.py`` states the protocol, ``run.py`` follows it. Once the script has imported torch, ``conductor.py`` hears
from ``hooks/`` and drives one of ``modes/``.

Modules here import each other relatively, because the package is loaded under the private name ``_autotune``: a
script's own ``autotune`` keeps its name.
"""
