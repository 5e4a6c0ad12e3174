"""The worker of ONNX models: ``python -P <this file> <run directory>``; see ``run.py``."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    worker = runpy.run_path(str(Path(__file__).resolve().parents[1] / "worker" / "__main__.py"), run_name="bootstrap")
    worker["load_package"]()
    sys.exit(importlib.import_module(f"{worker['PACKAGE']}.inference.run").main(sys.argv[1]))
