"""Modules imported ahead of a script: what keeps them from it, and what a script sees of those that are."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from autotune.records.facts import Preload
from autotune.worker.hidden_modules import Hidden
from autotune.worker.import_watch import ImportWatch
from autotune.worker.preloading import PreloadError, TorchState, preload
from autotune.worker.torch_import import when_imported

LIBRARY = "a_library_of_tests"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Write modules into a folder of installed ones, which is on the path until the test is over."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr("autotune.worker.preloading.watch_native_writers", lambda: None)

    def install(source: str, name: str = LIBRARY) -> None:
        path = folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(source))
        importlib.invalidate_caches()

    finders = list(sys.meta_path)
    yield install
    sys.meta_path[:] = finders
    for name in [one for one in sys.modules if "_of_tests" in one]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os; os.environ['A_VARIABLE_OF_TESTS'] = '1'", "sets A_VARIABLE_OF_TESTS"),
        ("import os; os.chdir('/')", "changes the working directory"),
        ("import sys; sys.path.append('/elsewhere')", "changes how modules are found"),
        ("import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)", "changes signal handlers"),
        ("import os; kept = os.open('/dev/null', os.O_RDONLY)", "changes open files"),
        ("import sys; sys.excepthook = print", "changes how exceptions are shown"),
        ("import random; random.random()", "changes Python's random numbers"),
        ("import torch; torch.rand(1)", "changes torch's random numbers"),
        ("import numpy; numpy.random.rand()", "changes NumPy's random numbers"),
        ("import torch; torch.set_default_dtype(torch.float64)", "changes torch's default type"),
        ("import torch; torch.set_default_device('meta')", "changes torch's default device"),
        ("import torch; torch.nn.functional.relu = abs", "changes functions of torch.nn.functional"),
        ("import sys; flag = '--fast' in sys.argv", "reads the script's arguments"),
        ("import argparse; parser = argparse.ArgumentParser()", "reads the script's arguments"),
        ("import torch; fast = torch.compile(abs)", "calls torch.compile"),
        ("from torch import compile", "keeps a function of torch"),
        ("raise OSError('not today')", f"importing {LIBRARY} failed: OSError: not today"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_leaves_more_than_modules_is_not_imported_ahead(
    install: Callable[..., None], source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(source)
    importlib.import_module("numpy.random")  # so that it has a state
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(torch.nn.functional, "relu", torch.nn.functional.relu)
    monkeypatch.setattr(sys, "path", [*sys.path])
    folder, handler, compile_ = Path.cwd(), signal.getsignal(signal.SIGUSR2), torch.compile
    try:
        with pytest.raises(PreloadError, match=reason) as refused:
            preload(Preload((LIBRARY,)))
        assert refused.value.module == LIBRARY
    finally:
        os.chdir(folder)
        os.environ.pop("A_VARIABLE_OF_TESTS", None)
        signal.signal(signal.SIGUSR2, handler)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
        kept = getattr(sys.modules.get(LIBRARY), "kept", None)
        if kept is not None:
            os.close(kept)
    assert torch.compile is compile_


QUIET = """
import argparse, logging, threading
import torch
from torch import nn
import a_library_of_tests_below
logger = logging.getLogger(__name__)
class Model(nn.Linear): ...
"""


def test_what_leaves_nothing_is_imported_ahead_with_all_that_it_imports(install: Callable[..., None]) -> None:
    install("", "a_library_of_tests_below")
    install(QUIET)

    assert {LIBRARY, "a_library_of_tests_below"} <= set(preload(Preload((LIBRARY,))))


def test_of_several_modules_the_first_that_leaves_more_is_named(install: Callable[..., None]) -> None:
    for name, source in {
        "first": "",
        "second": "import random; random.random()",
        "third": "import sys; sys.argv[0]",
    }.items():
        install(source, f"{name}_of_tests")
    with pytest.raises(PreloadError, match="importing second_of_tests changes Python's random numbers") as refused:
        preload(Preload(("first_of_tests", "second_of_tests", "third_of_tests")))

    assert refused.value.module == "second_of_tests"
    assert "third_of_tests" not in sys.modules


def test_what_may_not_be_forked_after_a_module_is_put_down_to_that(install: Callable[..., None]) -> None:
    install("", "first_of_tests")
    install("", "second_of_tests")
    with pytest.raises(PreloadError, match="second_of_tests has opened a GPU") as refused:
        preload(
            Preload(("first_of_tests", "second_of_tests")),
            why_not_to_fork=lambda name: f"{name} has opened a GPU" if name == "second_of_tests" else "",
        )

    assert refused.value.module == "second_of_tests"


def test_libraries_that_ask_for_gpus_leave_cuda_as_it_is(install: Callable[..., None]) -> None:
    """``torch.cuda.is_available`` asks NVML then: what has asked CUDA cannot be forked."""
    install("from torch.cuda import _nvml_based_avail\nby_nvml = _nvml_based_avail()")
    preload(Preload((LIBRARY,)))

    assert sys.modules[LIBRARY].by_nvml
    assert not torch.cuda._nvml_based_avail()


def test_libraries_that_count_gpus_leave_no_file_of_them_open(
    install: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards: torch opens NVML to count GPUs and leaves it open; a process with a GPU's file open is not forked."""
    is_open: list[int] = []

    def count() -> int:
        is_open.append(os.open("/dev/null", os.O_RDONLY))
        return 1

    library = SimpleNamespace(nvmlShutdown=lambda: os.close(is_open.pop()))
    monkeypatch.setattr("autotune.worker.preloading.ctypes.CDLL", {"libnvidia-ml.so.1": library}.__getitem__)
    monkeypatch.setattr(torch.cuda, "_raw_device_count_nvml", count)
    install("import torch; number = torch.cuda._raw_device_count_nvml()")

    preload(Preload((LIBRARY,)))

    assert sys.modules[LIBRARY].number == 1
    assert not is_open
    assert torch.cuda._raw_device_count_nvml is count


def test_what_is_imported_ahead_is_hidden_until_it_is_imported_and_then_it_is_the_same(
    install: Callable[..., None],
) -> None:
    install("", "a_library_of_tests_below")
    install(QUIET)
    others = preload(Preload((LIBRARY,)))
    module, finders = sys.modules[LIBRARY], list(sys.meta_path)
    asked: list[str] = []
    seen: list[str] = []
    hidden = Hidden(Preload((LIBRARY,)), others)
    hidden.about_to_reveal = asked.append
    when_imported(lambda: seen.append("below"), "a_library_of_tests_below")
    try:
        assert not {LIBRARY, "a_library_of_tests_below", "torch"} & set(sys.modules)
        found = importlib.util.find_spec(LIBRARY)
        assert found is not None, "whoever only looks whether it is there finds it"
        assert found.origin == module.__file__
        assert LIBRARY not in sys.modules, "and gets nothing"
        assert importlib.import_module("torch") is torch
        assert LIBRARY not in sys.modules, "torch comes by itself"
        assert asked == seen == []

        assert importlib.import_module(LIBRARY) is module
    finally:
        hidden._reveal_torch()
    assert asked == [LIBRARY]
    assert seen == ["below"], "what waits for a module acts when it comes with another"
    assert sys.modules["a_library_of_tests_below"] is module.a_library_of_tests_below
    assert sys.meta_path == finders
    assert "create_module" not in vars(module.__spec__.loader)
    assert "exec_module" not in vars(module.__spec__.loader)


def test_what_the_script_imported_before_torch_in_discovery_is_not_hidden(install: Callable[..., None]) -> None:
    install("", "a_library_of_tests_below")
    install(QUIET)
    wanted = Preload((LIBRARY,), before_torch=("a_library_of_tests_below",))
    hidden = Hidden(wanted, preload(wanted))
    is_there = "a_library_of_tests_below" in sys.modules
    hidden._reveal_torch()

    assert is_there


def test_a_module_that_brings_torch_brings_it(install: Callable[..., None]) -> None:
    install("import torch")
    wanted = Preload((LIBRARY,), brings_torch=True)
    hidden = Hidden(wanted, preload(wanted))
    came: list[str] = []
    hidden.about_to_reveal = lambda name: came.append(f"{name}, torch {'torch' in sys.modules}")
    try:
        importlib.import_module(LIBRARY)
    finally:
        hidden._reveal_torch()

    assert came == [f"{LIBRARY}, torch True"]


def test_a_part_of_what_is_not_hidden_is_no_member_of_it_until_it_is_imported(install: Callable[..., None]) -> None:
    """Guards: torch hands out its compiler as a member, without an import."""
    install("", "package_of_tests.__init__")
    install("", "package_of_tests.part")
    package = importlib.import_module("package_of_tests")
    wanted = Preload(("package_of_tests.part",))
    hidden = Hidden(wanted, preload(wanted))
    was_there = hasattr(package, "part")
    try:
        part = importlib.import_module("package_of_tests.part")
    finally:
        hidden._reveal_torch()

    assert not was_there
    assert package.part is part


def test_a_script_that_puts_a_function_of_its_own_into_torch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    state = TorchState()
    assert state.change() == ""
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", abs)

    assert state.change() == "the script changes functions of torch.nn.functional"


@pytest.fixture
def without_torch() -> Iterator[Hidden]:
    hidden = Hidden()
    yield hidden
    hidden._reveal_torch()


def watched(source: str, *, change: Callable[[], str] = lambda: "") -> Preload:
    """What is noted of a script; torch is hidden as it begins."""
    watch = ImportWatch()
    when_imported(lambda: watch.torch_is_imported(change), before=watch.torch_begins)
    try:
        exec(textwrap.dedent(source), {"__name__": "a_script"})
    finally:
        watch.close()
    return watch.preload()


@pytest.mark.usefixtures("without_torch")
def test_what_a_script_imports_itself_is_noted_in_its_order(install: Callable[..., None], tmp_path: Path) -> None:
    for name in ("early_of_tests", "below_of_tests", "package_of_tests.part", "last_of_tests", "nested_of_tests"):
        install("", name)
    install("", "package_of_tests.__init__")
    install("import below_of_tests, nested_of_tests", LIBRARY)
    own = tmp_path / "own"
    own.mkdir()
    (own / "own_of_tests.py").write_text("import last_of_tests")
    sys.path.append(str(own))

    found = watched(f"""
        import argparse, early_of_tests, torch
        import package_of_tests.part
        import own_of_tests, below_of_tests
        import {LIBRARY}, xml.dom
    """)

    assert found.modules == ("package_of_tests.part", "last_of_tests", "below_of_tests", LIBRARY)
    assert not found.brings_torch
    assert "early_of_tests" in found.before_torch
    assert LIBRARY not in found.before_torch


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize("source", ["import torch", "import argparse, torch\nfrom torch import nn", "import argparse"])
def test_of_a_script_that_imports_nothing_but_torch_nothing_is_noted(source: str) -> None:
    assert watched(source) == Preload()


@pytest.mark.usefixtures("without_torch")
def test_what_a_script_imports_after_it_has_changed_something_is_left_out(install: Callable[..., None]) -> None:
    install("", "first_of_tests")
    install("", "second_of_tests")
    found = watched(
        """
        import torch, first_of_tests, os
        os.environ["A_VARIABLE_OF_TESTS"] = "1"
        import second_of_tests
        """,
        change=lambda: "it does" if os.environ.pop("A_VARIABLE_OF_TESTS", "") else "",
    )

    assert found.modules == ("first_of_tests",)


@pytest.mark.usefixtures("without_torch")
def test_a_script_that_imports_torch_with_something_else_says_so(install: Callable[..., None]) -> None:
    install("import torch")
    install("", "second_of_tests")

    found = watched(f"import {LIBRARY}, second_of_tests, torch")

    assert found.modules == (LIBRARY, "second_of_tests")
    assert found.brings_torch


@pytest.mark.usefixtures("without_torch")
def test_a_package_that_is_under_way_when_torch_begins_has_not_come_before_it(install: Callable[..., None]) -> None:
    install("import package_of_tests.early, torch", "package_of_tests.__init__")
    install("import early_of_tests", "package_of_tests.early")
    install("", "early_of_tests")

    found = watched("import package_of_tests")

    assert found.modules == ("package_of_tests",)
    assert found.brings_torch
    assert "early_of_tests" in found.before_torch, "this one is complete by then"


@pytest.mark.usefixtures("without_torch")
def test_nothing_is_noted_where_a_package_imports_torch_later_than_itself(install: Callable[..., None]) -> None:
    """It is there before torch, and what of it was imported ahead could be reached past any import."""
    install("", "lazy_of_tests.__init__")
    install("import torch", "lazy_of_tests.part")

    assert watched("import lazy_of_tests\nimport lazy_of_tests.part\nimport torch") == Preload()
