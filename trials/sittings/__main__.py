"""``python -m trials.sittings``: install what this interpreter lacks, and hold a sitting (``command.py``)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from trials.sittings import wheels

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Hold a sitting; gives its exit status."""
    # Wheels are for one version of Python.
    site = ROOT / "build/gpu-site" / sys.implementation.cache_tag
    sys.path.insert(1, str(site))  # first, as an earlier sitting may have installed it
    wheels.install(site)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))

    from trials.sittings import command

    return command.main()


if __name__ == "__main__":
    sys.exit(main())
