"""Prints, as JSON, what a script can tell of the way it is run, and then trains for some steps."""

import hashlib
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import threading


class Annotated:
    """This file has no `from __future__ import annotations`."""

    field: 1 + 1


def readable():
    return "its source can be found"


def in_child(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


seen = {
    "argv": sys.argv,
    "file": __file__,
    "name": __name__,
    "doc": __doc__,
    "globals": sorted(name for name in globals() if name.startswith("__")),
    "loader": type(__loader__).__name__,
    "spec": repr(__spec__),
    "is main": sys.modules["__main__"].__dict__ is globals(),
    "path": sys.path,
    "on the path": [name for name in ("engines", "hooks", "session") if importlib.util.find_spec(name)],
    "annotation": Annotated.__annotations__["field"],
    "source": inspect.getsource(readable),
    "directory": os.getcwd(),
    "standard input": sys.stdin.read(),
    "main thread": threading.current_thread() is threading.main_thread(),
    "interrupt": repr(signal.getsignal(signal.SIGINT)),
    "terminate": repr(signal.getsignal(signal.SIGTERM)),
    "excepthook": sys.excepthook is sys.__excepthook__,
    "torch is imported": "torch" in sys.modules,
    "marker": importlib.import_module("marker").__file__ if importlib.util.find_spec("marker") else None,
    "sitecustomize ran": hasattr(sys, "customized"),
    "variables": {name: hashlib.sha256(value.encode()).hexdigest()[:8] for name, value in os.environ.items()},
    "python path": os.environ.get("PYTHONPATH"),
    "child's marker": in_child("import marker; print(marker.__file__)"),
    "child's sitecustomize ran": in_child("import sys; print(hasattr(sys, 'customized'))"),
}

os.environ["OMP_NUM_THREADS"] = "3"  # too late if somebody has imported torch before
import torch

seen["threads"] = torch.get_num_threads()
print("SEEN", json.dumps(seen), flush=True)

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
for _ in range(60):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("LOSS", loss.item().hex(), flush=True)
