"""Hooks into an unmodified script. A hook never raises into the script: what it cannot do becomes a note.

``roots.py`` finds the modules that the script calls itself, ``compilation.py`` watches its own ``torch.compile``,
``steps.py`` counts optimizer steps and phases, ``loaders.py`` and ``samples.py`` count samples, ``batch_size.py``
answers scripts that ask, ``training_libraries.py`` sets what libraries accumulate. ``hooked_script.py`` is what they
see of a script, for those who measure or describe it.
"""
