"""What runs inside the training process: needs Python >= 3.11 and torch, nothing else.

``__main__.py`` states the protocol, ``run.py`` follows it. Once the script has imported torch, ``conductor.py`` leads
the process (``process.py``): it hears from ``hooks/`` and drives one of ``modes/``, which measure (``measuring/``),
describe (``describing/``) or compare (``proving/``) the configuration that ``engines/``, ``plans/`` and ``choices/``
apply (``applied.py``).

Modules here import each other relatively, because the package is loaded under the private name ``_autotune``: a
script's own ``autotune``, ``trials`` or ``records`` keep their names.
"""
