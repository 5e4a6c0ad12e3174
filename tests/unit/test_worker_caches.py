"""The compile caches of a run, in a process that stands for one with torch."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from autotune.worker import run


def test_a_script_that_takes_the_variable_away_compiles_into_the_runs_own_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, user = types.ModuleType("cache_dir_utils"), types.ModuleType("runtime_utils")
    module.default_cache_dir = user.default_cache_dir = lambda: "/the/users/own"
    module.cache_dir = lambda: os.environ.get("TORCHINDUCTOR_CACHE_DIR") or module.default_cache_dir()
    monkeypatch.setitem(sys.modules, run._CACHE_FOLDERS, module)
    monkeypatch.setitem(sys.modules, run._USERS_OF_CACHES[0], user)
    monkeypatch.setitem(sys.modules, run._USERS_OF_CACHES[1], types.ModuleType("codecache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))

    run._redirect_caches()
    del os.environ["TORCHINDUCTOR_CACHE_DIR"]

    assert module.cache_dir() == user.default_cache_dir() == str(tmp_path)
