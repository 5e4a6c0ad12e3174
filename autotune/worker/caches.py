"""The compile caches of a run: its own, wherever the user's are and whatever the script says."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from .torch_import import when_imported

_MODULE = "torch._inductor.runtime.cache_dir_utils"
# Who has imported the function from there by its name.
_USERS = ("torch._inductor.runtime.runtime_utils", "torch._inductor.codecache")


def redirect_caches(variables: Mapping[str, str]) -> None:
    """Have torch compile into these caches; called when it is imported, children's processes included.

    A script may have set the variables by then. And Inductor keeps precompiled headers in its default folder whatever
    variable is set (torch 2.13: ``codecache._HEADER_DIR``), where half of one would break every later compilation.
    """
    os.environ.update(variables)
    when_imported(_redirect, _MODULE)


def _redirect() -> None:
    module = sys.modules[_MODULE]
    folder = module.cache_dir()  # asks the variables, and the default where the script has taken them away

    def default() -> str:
        return folder

    module.default_cache_dir = default  # type: ignore[attr-defined]
    for name in _USERS:
        user = sys.modules.get(name)
        if hasattr(user, "default_cache_dir"):
            user.default_cache_dir = default  # type: ignore[union-attr]
    codecache = sys.modules.get("torch._inductor.codecache")
    if hasattr(codecache, "_HEADER_DIR"):
        headers = os.path.join(folder, "precompiled_headers")  # noqa: PTH118
        codecache._HEADER_DIR = headers  # type: ignore[union-attr]
        codecache._HEADER_LOCK_DIR = os.path.join(headers, "locks")  # type: ignore[union-attr]  # noqa: PTH118
