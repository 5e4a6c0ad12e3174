"""Take the pictures that the pages show, of a real study: ``python docs/screenshots.py`` (``make screenshots``).

The study is the one that the README shows, with more time. It runs on whatever this machine has, for some six minutes.
Needs Debian's Chromium (``make setup-browser``).
"""

from __future__ import annotations

import html
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
STUDY = "snippets"
COMMAND = f"autotune run train.py --study {STUDY} --memory-limit 680MiB --batch-sizes 32:256 --time-budget 5m"
SCREEN_LINES, WIDTH = 40, 118

_TERMINAL = """<!doctype html><meta charset="utf-8"><style>
body { margin: 0; background: #16181a; color: #e8e9ea; font: 14px/1.45 "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: 18px 22px; font: inherit; white-space: pre; }
</style><pre>"""


def main() -> None:
    """Run the study, and take its pictures."""
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="autotune-pictures-") as made:
        folder = Path(made)
        shutil.copy(DOCS.parent / "trials" / STUDY / "train.py", folder)
        said = _run(folder, *COMMAND.split()[1:])
        _picture_of_text(folder, f"$ {COMMAND}\n{_end_of(said)}", "terminal.png")
        _picture((folder / f"autotune-{STUDY}" / "report.html").as_uri(), "report.png", 1280, 900)
        with _dashboard(folder) as address:
            _picture(f"{address}study?name={quote(STUDY)}", "dashboard.png", 1280, 900)


def _run(folder: Path, *arguments: str) -> str:
    """What the command line says to who reads it in a file, errors and output in one."""
    command = [sys.executable, "-P", "-m", "autotune", *arguments]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{COMMAND}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def _end_of(said: str) -> str:
    """The last screen of it, from the line of the baseline if that is in it."""
    # A log has each sentence on one line.
    lines = [part for line in said.rstrip().split("\n") for part in textwrap.wrap(line, WIDTH) or [""]]
    begins = next((number for number, line in enumerate(lines) if line.startswith("Baseline ")), 0)
    kept = lines[begins:]
    return "\n".join(["...", *kept[-SCREEN_LINES:]] if len(kept) > SCREEN_LINES else ["...", *kept])


@contextmanager
def _dashboard(folder: Path) -> Iterator[str]:
    command = [sys.executable, "-P", "-m", "autotune", "dashboard", "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        watch = threading.Timer(120.0, process.kill)  # nothing waits for ever
        watch.start()
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            if found is None:
                sys.exit("the dashboard did not say where it is")
            yield found.group()
        finally:
            watch.cancel()
            process.terminate()


def _picture_of_text(folder: Path, text: str, name: str) -> None:
    page = folder / "terminal.html"
    page.write_text(_TERMINAL + html.escape(text) + "</pre>", encoding="utf-8")
    lines = text.split("\n")
    _picture(page.as_uri(), name, 44 + round(8.43 * max(map(len, lines))), 36 + round(20.3 * len(lines)))


def _picture(address: str, name: str, width: int, height: int) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("no Chromium here: make setup-browser installs Debian's")
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--window-size={width},{height}", f"--screenshot={PICTURES / name}", address]
    subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
