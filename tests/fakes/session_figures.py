"""A session in a process of its own, and what that process comes to: ``python session_figures.py MODEL CHOICES SIZES``.

An arena is one for all sessions of a process, and a heap remembers what was freed, so figures of two settings are of
two processes.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

__all__ = ["figures_of"]

_MEGABYTE = 1 << 20


class _Mallinfo(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks")
    ]
    _fields_ += [(name, ctypes.c_size_t) for name in ("uordblks", "fordblks", "keepcost")]


def figures_of(model, choices, *sizes):
    """Run a model of one input ``x`` of rows of 1024 numbers with so many rows each; figures in MiB, but for counts."""
    command = [sys.executable, __file__, str(model), ",".join(choices), ",".join(map(str, sizes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _status():
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM", "VmPeak", "VmSize")}


def _main(model, choices, sizes):
    import numpy as np

    from autotune.inference.session import Runner
    from autotune.records.choices import made_choices
    from autotune.records.session import session_of

    before = _status()
    runner = Runner(
        Path(model), session_of(made_choices("onnxruntime", list(filter(None, choices.split(",")))).items())
    )
    for size in map(int, sizes.split(",")):
        runner.run({"x": np.ones((size, 1024), np.float32)})
    after = _status()
    # A block that was mapped and is freed has glibc take larger ones from its heap from then on, unless told not to.
    np.ones(16 * _MEGABYTE, np.uint8)
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    mapped = mallinfo().hblks
    kept = [np.ones(_MEGABYTE, np.uint8) for _ in range(8)]
    figures = {name: after[name] - before[name] for name in after} | {"mapped": mallinfo().hblks - mapped}
    sys.stdout.write(json.dumps(figures | {"kept": len(kept)}))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    _main(*sys.argv[1:])
