"""A function as a script: what is written down with it, and what cannot be."""

from __future__ import annotations

import json
import linecache
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autotune.api.source import script_of
from autotune.errors import UsageError

Cell = Callable[[str], dict[str, Any]]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cell]:
    """``cell(source)`` runs it in a ``__main__`` without a file, as a notebook does."""
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    files: list[str] = []

    def run(source: str) -> dict[str, Any]:
        source, file = textwrap.dedent(source), f"<cell {len(files)}>"
        files.append(file)
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        exec(compile(source, file, "exec", dont_inherit=True), vars(main))
        return vars(main)

    yield run
    for file in files:
        linecache.cache.pop(file, None)


def ran(text: str, name: str = "train") -> Any:
    """What the function gives in a fresh namespace."""
    names: dict[str, Any] = {"__name__": "script"}
    before = list(sys.path)
    try:
        exec(compile(text, "script.py", "exec", dont_inherit=True), names)
        return names[name]()
    finally:
        sys.path[:] = before


def test_a_function_of_a_notebook_brings_what_it_uses(cell: Cell) -> None:
    cell(
        """
        import json
        import collections.abc as abc
        from functools import partial

        WIDTH, NAMES = 8, ("a", {"b": 1.5})
        unused = open

        def doubled(x):
            return 2 * x

        class Base:
            def size(self):
                return doubled(WIDTH)

        @partial
        def decorated(x=1):
            return x
        """
    )
    names = cell(
        """
        class Net(Base):
            width = WIDTH

            def size(self):
                return super().size() + 1

        def train(scale=1):
            def inner():
                return Net().size()
            return json.dumps([inner() * scale, NAMES, isinstance([], abc.Sequence)])
        """
    )
    text = script_of(names["train"])
    assert json.loads(ran(text)) == [17, ["a", {"b": 1.5}], True]
    assert "unused" not in text
    assert "decorated" not in text
    assert str(Path.cwd()) in text
    assert text.endswith('if __name__ == "__main__":\n    train()\n')


def test_what_was_defined_twice_counts_as_it_is_now(cell: Cell) -> None:
    cell("def helper():\n    return 1\n\ndef train():\n    return helper()\n")
    names = cell("def helper():\n    return 2\n\ndef helper():\n    return 3\n")
    assert ran(script_of(names["train"])) == 3


def test_functions_may_call_each_other_and_have_other_names(cell: Cell) -> None:
    names = cell(
        """
        def even(n):
            return n == 0 or odd(n - 1)

        def odd(n):
            return n != 0 and even(n - 1)

        is_even = even

        def train():
            return is_even(4), odd(4)
        """
    )
    assert ran(script_of(names["train"])) == (True, False)


@pytest.mark.parametrize(
    ("source", "cause", "hint"),
    [
        ("x = object()\ndef train():\n    return x", "the function uses 'x', a object", "make it inside the function"),
        ("def train(data):\n    pass", "needs data", "give data a default"),
        ("train = lambda: 1", "no function of a module or a notebook", "define it with `def`"),
        ("class A:\n    def train(self): pass\ntrain = A().train", "no function of a module", "define it with `def`"),
        ("def made():\n    def train(): pass\n    return train\ntrain = made()", "no function", "define it with `def`"),
        ("class Empty: pass\ndef train():\n    return Empty()", "source of Empty is not known", "make it inside"),
    ],
)
def test_what_another_process_cannot_have_is_refused(source: str, cause: str, hint: str, cell: Cell) -> None:
    function = cell(source)["train"]
    with pytest.raises(UsageError, match=cause) as refused:
        script_of(function)
    assert hint in refused.value.hint


def test_a_function_of_a_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "trainers_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "small.py").write_text(
        "def train():\n    return 'trained'\n\ndef other():\n    pass\n\nhidden = train\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import trainers_of_a_test.small as module  # type: ignore[import-not-found]

    text = script_of(module.train)
    assert "from trainers_of_a_test.small import train" in text
    assert repr(str(tmp_path)) in text
    assert ran(text) == "trained"
    monkeypatch.setattr(module, "train", module.other)
    with pytest.raises(UsageError, match="has no train at its top level"):
        script_of(module.hidden)
