"""The worker, whose fork server has imported torch's compiler too: every run would import it, which takes seconds."""

import importlib
import sys
from pathlib import Path

WORKER = Path(__file__).resolve().parents[2] / "autotune/worker/__main__.py"

if __name__ == "__main__":
    if sys.argv[1] == "--fork-server":
        for name in ("torch._dynamo", "torch._functorch.aot_autograd"):
            importlib.import_module(name)
    __file__ = str(WORKER)
    exec(compile(WORKER.read_bytes(), __file__, "exec"))
