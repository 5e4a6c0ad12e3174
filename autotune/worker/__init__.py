"""What runs inside the training process: needs Python >= 3.11 and torch, nothing else.

``__main__.py`` states the protocol. Modules here import each other relatively, because the package is loaded under
the private name ``_autotune``: a script's own ``autotune``, ``trials`` or ``records`` keep their names.
"""
