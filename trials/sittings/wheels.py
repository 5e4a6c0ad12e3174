"""Take along what a machine with a GPU and without a network may lack: ``make gpu-wheels``.

The machine has torch with what torch brings, and transformers. The rest of what autotune and its tests of GPUs need is
downloaded into ``build/gpu-wheels``. A sitting installs what is missing there into a folder of its own, and changes
nothing of the interpreter that it runs with.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[2]
WHEELS = ROOT / "build/gpu-wheels"
_FOR_TESTS = ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
_IS_THERE = ("torch", "transformers", "numpy", "scipy")
# Of manylinux, from the newest: pip takes each by its exact number.
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 24, 17)] + ["manylinux2014_x86_64"]


def install(folder: Path, wheels: Path = WHEELS) -> None:
    """Install what is missing from wheels into a folder; SystemExit where there is no wheel of it."""
    missing = {canonicalize_name(one.name) for one in _wanted() if not _is_here(one)}
    there = {canonicalize_name(parse_wheel_filename(path.name)[0]): path for path in wheels.glob("*.whl")}
    if lacking := sorted(missing - set(there)):
        raise SystemExit(
            f"This interpreter has no {', '.join(lacking)} as autotune needs it. Run `make gpu-wheels` on a machine "
            f"with a network, and take {wheels.relative_to(ROOT)} along."
        )
    # With what comes with it.
    missing |= {name for name in there if not _is_here(Requirement(name))} if missing else set()
    if missing:
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile")
        paths = [str(there[name]) for name in sorted(missing)]
        subprocess.run((*pip, "--upgrade", "--target", str(folder), *paths), check=True)


def download(python: str, wheels: Path = WHEELS) -> None:
    """Download, for a version of Python on Linux, the versions that are installed here."""
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:")
    machine = ("--python-version", python, "--implementation", "cp", *(f"--platform={name}" for name in _PLATFORMS))
    wheels.mkdir(parents=True, exist_ok=True)
    for path in wheels.glob("*.whl"):
        path.unlink()
    pinned = [f"{name}=={metadata.version(name)}" for name in names()]
    subprocess.run((*pip, *machine, "--dest", str(wheels), *pinned), check=True)
    took = sum(path.stat().st_size for path in wheels.iterdir())
    print(f"{wheels.relative_to(ROOT)}: {len(pinned)} wheels for Python {python}, {took / 2**20:.1f} MiB")


def names() -> list[str]:
    """The distributions that such a machine may lack."""
    return sorted(set(_closure(_wanted())) - set(_closure(map(Requirement, _IS_THERE))))


def _wanted() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [Requirement(text) for text in (*project["dependencies"], *_FOR_TESTS)]


def _is_here(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _closure(requirements: Iterable[Requirement]) -> Iterator[str]:
    """The names of distributions that are installed here for some of them, with what they need themselves."""
    left, seen = list(requirements), set()
    while left:
        one = left.pop()
        name = canonicalize_name(one.name)
        if name in seen or not _is_here(Requirement(name)):
            continue
        seen.add(name)
        yield name
        needs = map(Requirement, metadata.requires(name) or ())
        left += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def main() -> None:
    """Download wheels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default="3.12", metavar="VERSION", help="of the machine; default: 3.12")
    options = parser.parse_args()
    if re.fullmatch(r"3\.\d+", options.python) is None:
        parser.error(f"a version is like 3.12, not {options.python!r}")
    download(options.python)


if __name__ == "__main__":
    main()
