"""Build the null GPU: an environment with torch's CUDA build, and libraries in the place of NVIDIA's.

``build.py FOLDER --torch 2.14.1`` makes a virtual environment in the folder. torch and Triton are its own, without the
packages of NVIDIA's that torch asks for; everything else comes from the environment that runs this. A shell needs
``FOLDER/variables.sh`` to use it. What is there and newer than its sources is not made again.

Which symbols torch needs is read from its own libraries. What ``null_gpu.c`` does not have is refused when it is
called: with a line on stderr that names it, and the status that stands for "not supported" in its library.
"""

from __future__ import annotations

import argparse
import fcntl
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

SOURCE = Path(__file__).with_name("null_gpu.c")
_CORE = "libnullgpu.so"
_HEADERS = Path("headers")
# Opened by name, by torch and by pynvml; the others are those that torch's libraries are linked with.
_OPENED = ("libcuda.so.1", "libnvidia-ml.so.1")
# By prefix: the status of each library for what it does not support.
_REFUSALS = {
    "cublas": 15,
    "cudnn": 3000,
    "cusolver": 7,
    "cusparse": 10,
    "cufft": 16,
    "curand": 103,
    "nccl": 3,
    "nvrtc": 5,
    "cupti": 27,
    "nvshmem": 1,
    "nvml": 3,
    "cuda": 801,
    "cu": 801,
}
# What may be asked of the device without any effect on it.
_IGNORED = re.compile(
    r"cuda(Stream(Destroy|WaitEvent)|HostRegister|HostUnregister|DeviceEnablePeerAccess|Profiler\w+|FuncSetAttribute"
    r"|MemPool(SetAttribute|SetAccess|TrimTo)|MemcpyToSymbol|Memcpy(2D|Peer)Async|Device[GS]etGraphMemAttribute"
    r"|Graph(DebugDotPrint|NodeGetDependencies))"
    r"|cu(Logs\w+|FuncSetAttribute|FuncSetCacheConfig|ModuleUnload|CtxSetCurrent|CtxSetLimit|TensorMapEncodeTiled)"
    r"|cublas(Lt)?Set\w+|cudnn(Set\w+|Backend(SetAttribute|Finalize)|DeriveBN\w+|BatchNormalization\w+)|cupti\w+"
)
_STUBS = """#include <stdio.h>
#define IGNORED(name) int name(void) { return 0; }
#define REFUSED(name, status) \\
    int name(void) { fprintf(stderr, "the null GPU has no " #name "\\n"); return status; }
#define TEXT(name) const char *name(void) { return "refused by the null GPU"; }
"""


def make_environment(folder: Path, torch: str) -> Path:
    """Install torch's CUDA build, its Triton and the headers of its CUDA; gives the folder of its packages."""
    if missing := [tool for tool in ("gcc", "nm", "readelf") if shutil.which(tool) is None]:
        raise SystemExit(f"the null GPU is built with {', '.join(missing)}: install gcc and binutils")
    version = sysconfig.get_python_version()
    python, ready = folder / "bin/python", folder / f"torch-{torch}-python-{version}"
    install = (str(python), "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps")
    if not ready.exists():
        venv.create(folder, with_pip=True, clear=True)
        _run(*install, f"torch=={torch}")
        asked_for = "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')"
        triton = re.search(r"^triton([~=<>!\d.,]+)", _run(str(python), "-c", asked_for), re.MULTILINE)
        if triton is None:
            raise SystemExit(f"torch {torch} is no CUDA build here: it asks for no Triton. Name another with --torch.")
        _run(*install, f"triton{triton[1]}")
        ready.touch()
    packages = Path(_run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"))
    # Behind its own packages, with what is installed there as editable.
    beside = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (packages / "everything_else.pth").write_text(beside)
    if not (folder / _HEADERS).exists():
        # The library that comes with the headers stays where torch does not look for it.
        cuda = runpy.run_path(str(packages / "torch/version.py"))["cuda"]
        headers = (f"nvidia-cuda-{part}=={cuda}.*" for part in ("runtime", "crt"))
        _run(*install, "--target", str(folder / _HEADERS), *headers)
    return packages


def write_variables(folder: Path, libraries: Path) -> None:
    """Write the variables with which the environment finds the libraries, and keeps what it compiles in its folder."""
    variables = {
        "TRITON_LIBCUDA_PATH": libraries,
        "TRITON_CACHE_DIR": folder / "caches/triton",
        "TORCHINDUCTOR_CACHE_DIR": folder / "caches/inductor",
        "NULL_GPU_STATE": folder / "processes",
    }
    lines = [f"export {name}={shlex.quote(str(value))}" for name, value in variables.items()]
    others = '"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"'
    lines.append(f"export LD_LIBRARY_PATH={shlex.quote(str(libraries))}{others}")
    (folder / "variables.sh").write_text("\n".join(lines) + "\n")


def build_libraries(packages: Path, folder: Path) -> None:
    """Compile the libraries for the torch in a folder of packages."""
    libraries = sorted((packages / "torch/lib").glob("*.so"))
    core = folder / _CORE
    sources = [SOURCE, Path(__file__), *libraries]
    if core.exists() and core.stat().st_mtime > max(path.stat().st_mtime for path in sources):
        return
    folder.mkdir(parents=True, exist_ok=True)
    by_name = _called_by_triton(packages / "triton/backends/nvidia/driver.c") | _looked_up(libraries)
    needed = dict.fromkeys(by_name, "") | _linked(libraries)
    made = set(re.findall(r"^[\w* ]+?[ *](\w+)\(", SOURCE.read_text(), re.MULTILINE))
    stubs = folder / "stubs.c"
    stubs.write_text(_STUBS + "\n".join(_stub(name) for name in sorted({*needed} - made)) + "\n")
    versions = folder / "symbols.map"
    versions.write_text(_version_script(needed))
    flags = ("-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fPIC", "-shared")
    # It has its name once everything is there.
    new = core.with_suffix(".new")
    script = f"-Wl,-soname,{_CORE},--version-script={versions}"
    (include,) = folder.parent.glob(f"{_HEADERS}/nvidia/*/include")
    _run("gcc", *flags, script, f"-I{include}", str(SOURCE), str(stubs), "-o", str(new), "-ldl", "-lpthread")
    for name in sorted({*_libraries_of(libraries), *_OPENED}):
        _make_facade(folder, name, new, has_versions=name in needed.values())
    new.rename(core)


def _stub(name: str) -> str:
    if name.endswith(("String", "ErrorName")):
        return f"TEXT({name})"
    if _IGNORED.fullmatch(name):
        return f"IGNORED({name})"
    status = next(status for prefix, status in _REFUSALS.items() if name.startswith(prefix))
    return f"REFUSED({name}, {status})"


def _linked(libraries: list[Path]) -> dict[str, str]:
    """The symbols that torch's libraries have from NVIDIA's, and their versions; empty where they have none."""
    found = {}
    for library in libraries:
        for line in _run("nm", "-D", "--undefined-only", str(library)).splitlines():
            name, _, version = line.split()[-1].partition("@")
            if re.match(rf"(__cuda|{'|'.join(_REFUSALS)}|cublasLt|nvshmemx?_?)([A-Z]|_)", name) or name.startswith(
                "nvshmem"
            ):
                found[name] = version.strip("@")
    return found


def _looked_up(libraries: list[Path]) -> set[str]:
    """The calls of the driver and of NVML that torch looks up by their names."""
    found = (re.findall(rb"\0((?:nvml|cu)[A-Z]\w{4,})\0", library.read_bytes()) for library in libraries)
    return {name.decode() for names in found for name in names}


def _called_by_triton(source: Path) -> set[str]:
    """The driver's calls in the code that Triton compiles when it is first used."""
    return set(re.findall(r"\b(cu[A-Z]\w+)\(", source.read_text()))


def _libraries_of(libraries: list[Path]) -> set[str]:
    """The libraries of NVIDIA's that torch's are linked with."""
    wanted = re.compile(r"NEEDED.*\[(lib(?:cu\w+|nccl|nvrtc|nvshmem\w*)\.\S+)\]")
    return {name for library in libraries for name in wanted.findall(_run("readelf", "-d", str(library)))}


def _version_script(needed: dict[str, str]) -> str:
    of_versions: dict[str, list[str]] = {}
    for name, version in needed.items():
        of_versions.setdefault(version, []).append(name)
    rest = " ".join(f"{name};" for name in of_versions.pop("", []))
    nodes = [
        f"{version} {{ global: {' '.join(f'{name};' for name in names)} }};" for version, names in of_versions.items()
    ]
    return "\n".join([*nodes, f"NULL_GPU {{ global: cu[A-Z]*; nvml*; {rest} local: *; }};"]) + "\n"


def _make_facade(folder: Path, name: str, core: Path, *, has_versions: bool) -> None:
    """Make a library of this name that has nothing itself, and brings the one with everything."""
    options = f"-Wl,-soname,{name},--no-as-needed,-rpath,{folder}"
    if has_versions:
        # The loader looks here for the version, and everywhere for the symbol.
        versions = folder / "facade.map"
        versions.write_text(f"{name} {{ local: *; }};\n")
        options += f",--version-script={versions}"
    _run("gcc", "-shared", "-fPIC", options, "-xc", "/dev/null", "-xnone", str(core), "-o", str(folder / name))


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stderr.strip()}")
    return done.stdout.strip()


def main() -> None:
    """Build everything for one torch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--torch", required=True, help="a release from 2.11 on whose wheel is a CUDA build")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another one may be at it
        packages = make_environment(folder, options.torch)
        build_libraries(packages, folder / "lib")
        write_variables(folder, folder / "lib")


if __name__ == "__main__":
    sys.exit(main())
