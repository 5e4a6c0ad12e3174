"""The worker of a launch, in a process that has torch and its compiler already: ``warm_launch.py WORKER DIRECTORY``.

Where the script does something before it imports torch that its import may depend on, nothing more of it runs: the exit
status is ``REFUSED``, and the launch has to have a fresh process.
"""

import importlib
import os
import sys
from runpy import run_path

REFUSED = 75

if __name__ == "__main__":
    worker, directory = sys.argv[1:]
    sys.argv[:] = [worker, directory]
    del sys.path[0]  # this file's folder: workers are started with -P
    package = run_path(worker)["load_package"]().__name__
    hidden = importlib.import_module(f"{package}.worker.hidden_modules")
    facts = importlib.import_module(f"{package}.records.facts")
    run = importlib.import_module(f"{package}.worker.run")
    run._Host._refuse = lambda self, reason: os._exit(REFUSED)
    sys.exit(run.main(directory, hidden=hidden.Hidden(facts.Preload(), ())))
