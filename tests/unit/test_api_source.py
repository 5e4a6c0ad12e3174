"""A function as a script: what is written down with it, and what cannot be."""

from __future__ import annotations

import json
import linecache
import math
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
    vars(main)["_ih"] = [""]
    monkeypatch.setitem(sys.modules, "__main__", main)
    files: list[str] = []

    def run(source: str) -> dict[str, Any]:
        source, file = textwrap.dedent(source), f"<cell {len(files)}>"
        files.append(file)
        linecache.cache[file] = len(source), None, source.splitlines(keepends=True), file
        vars(main)["_ih"].append(source)
        exec(compile(source, file, "exec", dont_inherit=True), vars(main))
        return vars(main)

    yield run
    for file in files:
        linecache.cache.pop(file, None)


def ran(text: str, name: str = "train") -> Any:
    """What the function gives in a fresh namespace."""
    module = sys.modules["script"] = ModuleType("script")
    before = list(sys.path)
    try:
        exec(compile(text, "script.py", "exec", dont_inherit=True), vars(module))
        return getattr(module, name)()
    finally:
        sys.path[:] = before
        del sys.modules["script"]


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


def test_what_is_made_by_decorators_calls_and_bases_is_written_as_it_was_defined(cell: Cell) -> None:
    cell(
        """
        import enum
        from collections import namedtuple
        from dataclasses import dataclass, field
        from functools import cache

        @dataclass
        class Config:
            lr: float = 1.0

        class Color(enum.Enum):
            RED = 1
        """
    )
    names = cell(
        """
        Batch = namedtuple("Batch", "x y")

        @dataclass
        class Config:
            lr: float = 2.0
            sizes: list = field(default_factory=list)

        class Base:
            def size(self):
                return 3

        class Small(Base): pass

        @cache
        def data():
            return object()

        def train():
            same = data() is data()
            return Config().lr, Config([]).sizes, Color.RED.value, Batch(1, 2).y, Small().size(), same
        """
    )
    assert ran(script_of(names["train"])) == (2.0, [], 1, 2, 3, True)


@pytest.mark.parametrize("is_lazy", [False, True])
def test_annotations_are_evaluated_where_they_were(is_lazy: bool, cell: Cell) -> None:
    if is_lazy:
        cell("from __future__ import annotations")
    names = cell(
        ("from __future__ import annotations\n" if is_lazy else "")
        + textwrap.dedent(
            """
            from typing import TYPE_CHECKING
            if TYPE_CHECKING:
                from collections.abc import Sequence

            class Node:
                def next(self) -> NODE:
                    return self

            def first(items: SEQUENCE) -> int:
                return items[0]

            def train():
                Node().next()
                return first([1]), first.__annotations__["return"]
            """
        )
        .replace("NODE", "Node" if is_lazy else "'Node'")
        .replace("SEQUENCE", "Sequence[int]" if is_lazy else "'Sequence[int]'")
    )
    assert ran(script_of(names["train"])) == (1, "int" if is_lazy else int)


def test_infinity_is_no_name(cell: Cell) -> None:
    names = cell("best, none = -float('inf'), float('nan')\ndef train():\n    return best, none != none")
    assert ran(script_of(names["train"])) == (-math.inf, True)


def test_a_class_of_the_script_under_way_is_found_in_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    file = tmp_path / "train.py"
    file.write_text("class Base:\n    x = 1\n\ndef train():\n    return Base.x\n")
    main.__file__ = str(file)
    exec(compile(file.read_text(), file, "exec", dont_inherit=True), vars(main))
    assert ran(script_of(main.train)) == 1


@pytest.mark.parametrize(
    ("source", "cause", "hint"),
    [
        ("x = [float('inf')]\ndef train():\n    return x", "the function uses 'x', a list", "make it inside"),
        (
            "from collections import Counter\nx = Counter('a')\ndef train():\n    return x",
            "uses 'x', a Counter",
            "make it",
        ),
        (
            "from functools import cache\ndef step(): pass\nstep = cache(step)\ndef train():\n    return step()",
            "source of step as it is now is not known",
            "make it inside",
        ),
        (
            "from dataclasses import dataclass\nclass A: pass\nA = dataclass(A)\ndef train():\n    return A()",
            "source of A as it is now is not known",
            "make it inside",
        ),
        (
            "class Z: pass\ntry:\n    import none\nexcept ImportError:\n    class Z: v = 3\ndef train(): return Z.v",
            "source of Z as it is now is not known",
            "make it inside",
        ),
        (
            "class A: lr = 1\nA.lr = 2\ndef train():\n    return A.lr",
            "source of A as it is now is not known",
            "make it inside",
        ),
        (
            "from functools import cache\n@cache\ndef h(): return 1\nh = cache(h)\ndef train():\n    return h()",
            "source of h as it is now is not known",
            "make it inside",
        ),
        ("x = object()\ndef train():\n    return x", "the function uses 'x', a object", "make it inside the function"),
        ("def train(data):\n    pass", "needs data", "give data a default"),
        ("train = lambda: 1", "no function of a module or a notebook", "define it with `def`"),
        ("class A:\n    def train(self): pass\ntrain = A().train", "no function of a module", "define it with `def`"),
        ("def made():\n    def train(): pass\n    return train\ntrain = made()", "no function", "define it with `def`"),
        (
            "A = type('Made', (), {})\ndef train():\n    return A()",
            "source of Made as it is now is not",
            "make it inside",
        ),
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
