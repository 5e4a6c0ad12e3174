"""The worker: ``python -P <this file> <run directory>`` runs a training script with autotune's hooks inside.

The protocol, whole; ``records/run.py`` and ``records/progress.py`` define its types:

1. The controller makes a run directory and writes ``request.json`` (``Request``) into it: the script, its arguments,
   and the configurations to measure one after the other. It starts this file by its absolute path, with ``-P`` so that
   neither this folder nor the working directory is on ``sys.path``; in a session (and process group) of its own, whose
   output is ``stdout.log`` and ``stderr.log`` in the run directory; with the variables of the configurations' choices.
   The worker is killed when the controller ends
   (``PR_SET_PDEATHSIG``); at ``SIGUSR1`` it writes all its stacks to ``stderr.log``.
2. The worker loads the package beside it under the name ``_autotune``, without touching ``sys.path``, and becomes
   ``python script.py arguments``: fresh ``__main__``, ``sys.argv``, ``__file__``, the script's folder first on
   ``sys.path``; or ``python -m module arguments``, where the request names a module. Hooks are installed once the
   script has imported torch, so that environment variables and thread counts that it sets first still count.
3. Each training process maps ``progress-<pid>`` (``Progress``) at its first training call, and keeps its phase and step
   count in it.
4. Outcomes are lines of ``results.jsonl``, each appended in one write. For each configuration each training process
   appends one ``Result``. In mode ``discover`` the first rank appends ``Described`` after it, in mode ``audit``
   ``Audited``. In mode ``verify`` each appends ``Compared`` in the place of a ``Result`` that would be a measurement; a
   run that is a reference keeps its values in ``values-<rank>-<step>.pt``, where later runs compare theirs with them.
   The last line of a process whose script has imported torch is ``Ended``.
5. When all configurations are measured, a ``SystemExit`` with code 0 ends the script. A configuration that fails ends
   the run with that outcome. One that this process cannot be switched to ends the run, and ``Ended`` gives the reason.
   Later ones get no line; neither does one, but the first, for which the script had too few steps left.
6. Where torch's import is safely shared (``Facts.fork_refusal``), the main process of a run is forked from a fork
   server (this file with ``--fork-server FD LOGS``, see ``fork_server.py``). If the script has changed what the imports
   depend on, the process writes why to ``fork-refused`` and ends; the run is then started afresh.
7. Processes that the script starts (``mp.spawn``, ``torchrun``) get the hooks through ``inject/sitecustomize.py``,
   which the worker puts on their ``PYTHONPATH``, the run directory through ``AUTOTUNE_RUN``, and the request through
   ``AUTOTUNE_REQUEST``.
8. A run compiles into the caches that the request names. Where it names a folder for them, files that the script
   changes are kept aside there first (``files/backup.py``); processes that the script starts find that folder through
   ``AUTOTUNE_FILES``. The controller puts the files back.
9. In mode ``launch`` the worker is the command's own process. It removes the run directory once it has read the
   request, writes none of these files, and lets the script run to its end; nothing but the script writes to standard
   output.

Exit status: 0 when the protocol was followed, whatever the outcome; 2 when ``request.json`` cannot be read or speaks
another version of the protocol. In mode ``launch`` it is the script's own otherwise, or 3 where the first step shows
that the configuration could not be applied.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "_autotune"


def load_package() -> ModuleType:
    """Load the package that holds this file under a private name; its modules import each other relatively."""
    root = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(PACKAGE, root / "__init__.py", submodule_search_locations=[str(root)])
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[PACKAGE] = package
    spec.loader.exec_module(package)
    return package


if __name__ == "__main__":
    load_package()
    run = importlib.import_module(f"{PACKAGE}.worker.run")
    hidden = None
    if sys.argv[1] == "--fork-server":
        hidden = importlib.import_module(f"{PACKAGE}.worker.fork_server").serve(int(sys.argv[2]))
    sys.exit(run.main(sys.argv[1], hidden=hidden))
