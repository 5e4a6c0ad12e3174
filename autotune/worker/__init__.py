"""Code that runs inside the training process: it needs Python >= 3.11 and torch, nothing else.

``__main__.py`` states the protocol, ``run.py`` follows it. Once the script has imported torch, ``conductor.py`` leads
the process (``process.py``). The conductor hears from ``hooks/`` and drives one of ``modes/``. A mode measures
(``measuring/``), describes (``describing/``) or compares (``proving/``) the configuration. ``engines/``, ``plans/`` and
``choices/`` apply that configuration (``applied.py``).

Modules here import each other relatively, because the package is loaded under the private name ``_autotune``. So a
script's own ``autotune``, ``trials`` or ``records`` keep their names.
"""
