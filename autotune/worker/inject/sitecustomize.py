"""Gives the hooks to Python processes that a hosted script starts: this folder is on their ``PYTHONPATH``.

Costs an interpreter start nothing but this file and, in a trial, the backup of files; the rest is loaded once torch is
imported. A ``sitecustomize`` that this one shadows is run as well.
"""

import functools
import importlib.machinery
import importlib.util
import os
import sys


def _load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _start():
    here = os.path.dirname(os.path.abspath(__file__))
    directory = os.environ.get("AUTOTUNE_RUN")
    files = os.environ.get("AUTOTUNE_FILES")
    if directory:
        bootstrap = _load("_autotune_bootstrap", os.path.join(os.path.dirname(here), "__main__.py"))
        if files:
            bootstrap.load_package()
            importlib.import_module("_autotune.files.backup").install_backup(files)
        torch_import = _load("_autotune_torch_import", os.path.join(os.path.dirname(here), "torch_import.py"))

        def install():
            if not files:
                bootstrap.load_package()
            importlib.import_module("_autotune.worker.run").install_in_child(directory)

        def patch(name):
            importlib.import_module("_autotune.worker.hooks.training_libraries").patch(name)

        torch_import.when_imported(install)
        for name in torch_import.LIBRARIES:
            torch_import.when_imported(functools.partial(patch, name), name)
    elsewhere = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    shadowed = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if shadowed is not None and shadowed.loader is not None:
        shadowed.loader.exec_module(importlib.util.module_from_spec(shadowed))


_start()
