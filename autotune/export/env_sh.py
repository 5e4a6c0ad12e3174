"""``env.sh``: the bundle's environment variables, for a shell."""

from __future__ import annotations

import shlex

from ..records.stack import Stack
from .variables import MEM_OPT_NAME, MEM_OPT_VARIABLE

ENV_SH_NAME = "env.sh"

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


def render_env_sh(stack: Stack) -> str:
    """The file's contents: one ``export`` a line. The bundle may be moved; its path is found when the file is read."""
    exports = (
        f'    export {name}="$_bundle/{MEM_OPT_NAME}"'
        if name == MEM_OPT_VARIABLE
        else f"    export {name}={_quoted(value)}"
        for name, value in stack.variables.items()
    )
    return _FORM.format(mem_opt=MEM_OPT_NAME, exports="\n".join(exports))


def _quoted(value: str) -> str:
    """In quotes even where a shell needs none, so that the file looks the same whatever is in it."""
    quoted = shlex.quote(value)
    return quoted if quoted.startswith("'") else f"'{quoted}'"
