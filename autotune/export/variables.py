"""The environment variables that a bundle may carry: a closed list, each with the values it may have.

A bundle may come from somebody else, and a variable can load a library (``NCCL_NET_PLUGIN``), run code
(``PYTHONPATH``), load pickles from a folder (``TORCHINDUCTOR_CACHE_DIR``) or write to a path (``MALLOC_CONF``). So no
family is let in by its prefix, and nothing takes a path but ``ORTMODULE_MEMORY_OPT_CONFIG``, which must name the
bundle's own file. The variables of choices come on the list from the choices themselves: ``LD_PRELOAD`` with the names
of their libraries, which the loader looks for in the system's folders. A bundle must have no file of such a name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from ..errors import BundleError
from ..records.allocator_settings import ALLOCATOR_SETTINGS
from ..records.choices import choice_variables
from ..records.stack import Stack

MEM_OPT_NAME = "mem_opt.json"
ENV_SH_NAME = "env.sh"
MEM_OPT_VARIABLE = "ORTMODULE_MEMORY_OPT_CONFIG"

_SWITCH = re.compile(r"[01]")
_NUMBER = re.compile(r"[0-9]{1,18}")
_NUMBERS = re.compile(r"[0-9]{1,6}(,[0-9]{1,6}){0,7}")
_WORD = re.compile(r"[A-Za-z_]{1,32}")
_PLACES = re.compile(r"[A-Za-z0-9_{}():,=\-]{1,256}")
_WORKSPACE = re.compile(r"(:[0-9]{1,7}){2,8}")

KNOWN: dict[str, re.Pattern[str]] = choice_variables() | {
    # ONNX Runtime Training (documented in its Memory_Optimizer.md and ORTModule_Training_Guidelines.md)
    MEM_OPT_VARIABLE: re.compile(re.escape(MEM_OPT_NAME)),
    "ORTMODULE_MEMORY_OPT_LEVEL": re.compile(r"[012]"),
    "ORTMODULE_ENABLE_MEM_EFFICIENT_GRAD_MGMT": _SWITCH,
    "ORTMODULE_FALLBACK_POLICY": _WORD,
    "ORTMODULE_LOG_LEVEL": _WORD,
    "ORTMODULE_PRINT_MEMORY_STATS": _SWITCH,
    # torch
    "PYTORCH_HIP_ALLOC_CONF": ALLOCATOR_SETTINGS,
    "PYTORCH_NO_CUDA_MEMORY_CACHING": _SWITCH,
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": _SWITCH,
    # CUDA and its libraries
    "CUBLAS_WORKSPACE_CONFIG": _WORKSPACE,
    "CUDA_DEVICE_MAX_CONNECTIONS": _NUMBER,
    "CUDA_MODULE_LOADING": _WORD,
    "NVIDIA_TF32_OVERRIDE": _SWITCH,
    # threads and the C allocator
    "KMP_AFFINITY": _PLACES,
    "KMP_BLOCKTIME": _NUMBER,
    "MALLOC_ARENA_MAX": _NUMBER,
    "MALLOC_MMAP_THRESHOLD_": _NUMBER,  # of any size, as the script's own environment may say
    "MALLOC_TRIM_THRESHOLD_": _NUMBER,
    "MKL_NUM_THREADS": _NUMBER,
    "OMP_NUM_THREADS": _NUMBERS,
    "OMP_PLACES": _PLACES,
    "OMP_PROC_BIND": _WORD,
    "OMP_WAIT_POLICY": _WORD,
    "OPENBLAS_NUM_THREADS": _NUMBER,
}


# A file that is read learns its own path from BASH_SOURCE in bash and from $0 in zsh; in another shell it must be in
# the current folder. So mem_opt.json is looked for first, and nothing is set when it is not there.
_FORM = """\
# Environment variables of this bundle. Read them with `. ./env.sh` in this folder; in bash and zsh, from anywhere.
# `autotune launch` sets them by itself.
_bundle=$(CDPATH='' cd -- "$(dirname -- "${{BASH_SOURCE:-$0}}")" && pwd)
if [ -f "$_bundle/{mem_opt}" ]; then
{exports}
else
    echo "env.sh: {mem_opt} is not in '$_bundle': go to the bundle's folder and read env.sh there" >&2
fi
unset _bundle
"""


def allowed(name: str, value: str) -> bool:
    """Return whether a bundle may set ``name`` to ``value``."""
    pattern = KNOWN.get(name)
    return pattern is not None and pattern.fullmatch(value) is not None


def check(variables: Mapping[str, str]) -> None:
    """Raise BundleError for the first variable that is not on the list, or has a value it may not have."""
    for name, value in variables.items():
        if name not in KNOWN:
            raise BundleError(
                f"the bundle sets {name[:80]!r}, which is not on the list of variables a bundle may set",
                hint="take it out of stack.json, and set it yourself if you trust where the bundle comes from",
            )
        if not allowed(name, value):
            raise BundleError(
                f"the bundle sets {name} to {value[:80]!r}, which is not a value it may have",
                hint=f"correct {name} in stack.json, or take it out",
            )


def render_env_sh(stack: Stack) -> str:
    """Write ``env.sh``: one ``export`` a line. The bundle may be moved; its path is found when the file is read."""
    exports = (
        f'    export {name}="$_bundle/{MEM_OPT_NAME}"'
        if name == MEM_OPT_VARIABLE
        else f"    export {name}={_quoted(value)}"
        for name, value in stack.variables.items()
    )
    return _FORM.format(mem_opt=MEM_OPT_NAME, exports="\n".join(exports))


def _quoted(value: str) -> str:
    """Quote even where a shell needs no quotes, so that the file looks the same whatever is in it."""
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"
