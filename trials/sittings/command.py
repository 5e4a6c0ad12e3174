"""Find out on a GPU what is not known yet, for some minutes: ``make gpu PART=first``.

A sitting takes the steps of a part (``parts.py``) in their order; without a part, those of all of them. A finished step
is not taken again, unless it is of the code and the code has changed, or a step whose results it reads was taken again.
A step that failed is taken again once the code has changed, or with ``--again``. A step that is cut off goes on at the
next sitting.

All that is found lies in ``--folder``, in at most six files of 16 MiB, a moment after it was found: so a sitting may be
ended at any time. The next one goes on from that folder, on another machine with such a device too. Where the folder is
empty it goes on from ``--from``, and where that is empty too, from where the last sitting of this checkout worked.
``--land`` puts what was found below ``trials/records``.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from autotune.records.units import parse_duration
from tests.fingerprint import code_of
from trials.run import cuda_device

from .folder import JOURNAL, Folder
from .landing import REHEARSED, land
from .parts import DEFAULT_BUDGET, PARTS, steps
from .sitting import ROOT, Journal, Sitting, end_what_was_left

_BUILD = ROOT / "build"
# Where steps work.
_WORK = _BUILD / "gpu-work"
_INTERRUPTED = 130


def main() -> int:
    """Do what the command line asks for; gives how many steps failed, or 130 after Ctrl-C."""
    began_at = time.monotonic() - (time.time() - psutil.Process().create_time())
    options = _parse()
    if options.land:
        landed = land(options.folder, ROOT / "trials/records")
        print(*(path.relative_to(ROOT) for path in landed), "Next: python trials/page.py", sep="\n")
        return 0
    found = cuda_device()
    if found is None:
        raise SystemExit("torch sees no CUDA device here")
    name, memory_bytes = found
    device = f"{REHEARSED} {name}" if "NULL_GPU" in os.environ else name
    _BUILD.mkdir(exist_ok=True)
    with _WORK.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit("another sitting of this checkout is at work: wait for its end") from None
        end_what_was_left(_WORK)
        kept = _go_on(options.folder, options.earlier, device)
        journal = Journal(_WORK / JOURNAL)
        journal.begin(device)
        steps_ = steps(options.part, _WORK, memory_bytes=memory_bytes)
        code = code_of(ROOT / "autotune", ROOT / "trials", ROOT / "tests")
        if options.list:
            for step in steps_:
                print(f"{step.name}: {'left' if journal.is_open(step, code) else 'known'}")
            return 0
        budget_s = parse_duration(options.budget or PARTS.get(options.part, DEFAULT_BUDGET))
        sitting = Sitting(steps_, _WORK, ends_at=began_at + budget_s, code=code, again=options.again, keep=kept.keep)
        return _hold(sitting, kept)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trials.sittings", description=__doc__.splitlines()[0])
    parser.add_argument("part", nargs="?", choices=PARTS, help="default: all of them, in this order")
    parser.add_argument("--budget", metavar="TIME", help="how long it may take, as in 9m; default: that of the part")
    out = Path(os.environ.get("OUT") or _BUILD / "gpu")
    parser.add_argument("--folder", type=Path, default=out, metavar="DIR", help="default: $OUT, or build/gpu")
    earlier = _BUILD / "gpu"
    parser.add_argument("--from", type=Path, default=earlier, metavar="DIR", dest="earlier", help="default: build/gpu")
    parser.add_argument("--list", action="store_true", help="only say what is left")
    parser.add_argument("--again", action="store_true", help="take what failed again, though the code is the same")
    parser.add_argument("--land", action="store_true", help="only put what the folder holds below trials/records")
    options = parser.parse_args()
    options.folder, options.earlier = options.folder.resolve(), options.earlier.resolve()
    return options


def _go_on(folder: Path, earlier: Path, device: str, work: Path = _WORK) -> Folder:
    """Bring what was found on the device to where steps work; gives the folder to keep it in.

    What was found on another device, elsewhere than in that folder, is left alone: minutes on a GPU are not refused.
    """
    kept = Folder(folder, work)
    for path in dict.fromkeys((folder, earlier)):
        one, found_on = Folder(path, work), Journal(path / JOURNAL).device
        if one.holds_anything and (path == folder or found_on in ("", device)):
            one.unpack()
            print(f"Goes on from {path}")
            return kept
        if one.holds_anything:
            print(f"Begins anew: {path} is of {found_on}, and this is {device}")
    if Journal(work / JOURNAL).device == device:
        print(f"Goes on from {work}, where the last sitting worked: remove it to begin anew")
    else:
        kept.unpack()
    return kept


def _hold(sitting: Sitting, kept: Folder) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        taken = sitting.take()
    except KeyboardInterrupt:
        print("Interrupted: the same command goes on.", file=sys.stderr)
        return _INTERRUPTED
    finally:
        kept.keep(all_of_it=True)
    return sum(entry.status == "failed" for entry in taken)
