"""A function as a training script: a file that imports it, or that holds its source and what this needs; its trial."""

from __future__ import annotations
import __future__

import ast
import builtins
import cmath
import inspect
import linecache
import os
import symtable
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ..errors import UsageError

# The worker loads this package under a private name, so that a script's own `autotune` folder keeps its name.
_WORKER = "_autotune"


def is_hosted() -> bool:
    """Return whether autotune's hooks are in this process, or it was started by one that has them."""
    return _WORKER in sys.modules or "AUTOTUNE_RUN" in os.environ


def requested_batch_size(default: int) -> int:
    """The batch size of the trial that this process is in; ``default`` in any other process."""
    worker: Any = sys.modules.get(f"{_WORKER}.worker.hooks.batch_size")
    return default if worker is None else int(worker.requested(default))


_MAIN = "__main__"
_MAKE_IT_INSIDE = "make it inside the function, or put both into a module (a .py file) and import the function from it"
# What its `repr` says whole, so that it can be written down.
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def script_of(function: Callable[[], object]) -> str:
    """Return the text of a script that calls a function; UsageError where it needs what a file cannot have.

    A function that can be imported is imported. One of a notebook, or of the script under way, is written down with
    what it uses of there: other functions and classes, imported modules and names, and plain values.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not isinstance(function, FunctionType) or "<" in name:
        raise UsageError(
            f"{name} is no function of a module or a notebook, so that no other process can have it",
            hint="define it with `def` at the top level",
        )
    _check_parameters(function)
    if function.__module__ == _MAIN:
        body = "\n\n".join(_Written(vars(sys.modules[_MAIN])).all_for(function))
        # The script under way may import from its folder. A notebook has none.
        file = getattr(sys.modules[_MAIN], "__file__", None)
        own = [os.path.dirname(os.path.abspath(file))] if file else []  # noqa: PTH100, PTH120 (links stay as they are)
        # What is defined there may name in annotations what is not there yet, or is there for a type checker only.
        is_lazy = bool(function.__code__.co_flags & __future__.annotations.compiler_flag)
        first = "from __future__ import annotations\n\n" if is_lazy else ""
        return _script([str(Path.cwd()), *own], body, function.__name__, first=first)
    module = sys.modules[function.__module__]
    if getattr(module, function.__name__, None) is not function:
        raise UsageError(
            f"{function.__module__} has no {name} at its top level", hint="define it with `def` at the top level"
        )
    return _script(_folder_of(module), f"from {module.__name__} import {function.__name__}", function.__name__)


def _script(folders: list[str], body: str, name: str, *, first: str = "") -> str:
    found = list(dict.fromkeys(folders))
    path = f"import sys\n\nsys.path[1:1] = {found!r}\n\n" if found else ""
    # Where the function starts processes by `spawn`, they import this file.
    return f'# Written by autotune.tune.\n{first}{path}{body}\n\nif __name__ == "__main__":\n    {name}()\n'


def _check_parameters(function: FunctionType) -> None:
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed:
        raise UsageError(
            f"{function.__name__} is called without arguments, and needs {', '.join(needed)}",
            hint=f"give {needed[0]} a default",
        )


def _folder_of(module: ModuleType) -> list[str]:
    """Return where the module was found, unless Python looks there by itself."""
    if not getattr(module, "__file__", None):
        return []
    folder = Path(str(module.__file__)).absolute().parent
    package = module.__name__ if hasattr(module, "__path__") else module.__name__.rpartition(".")[0]
    for _ in filter(None, package.split(".")):
        folder = folder.parent
    return [] if folder.name in ("site-packages", "dist-packages") else [str(folder)]


class _Written:
    """Writes down what functions and classes of ``__main__`` need; ``names`` are what is there."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._parts: dict[str, str] = {}

    def all_for(self, function: FunctionType) -> list[str]:
        """Source for all that is needed, in the order in which it has to stand; the function's own is the last."""
        self._write(function.__name__, function)
        imports = sorted(part for part in self._parts.values() if part.startswith(("import ", "from ")))
        others = [part for part in self._parts.values() if part not in imports]
        return [part for part in ("\n".join(imports), *others) if part]

    def _write(self, name: str, value: Any) -> None:
        if name in self._parts:
            return
        self._parts[name] = ""  # under way: two functions may call each other
        text = self._text(name, value)
        del self._parts[name]  # what it needs stands before it
        self._parts[name] = text

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, ModuleType):
            return f"import {value.__name__}" if value.__name__ == name else f"import {value.__name__} as {name}"
        home, qualified = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
        if home == _MAIN and isinstance(inspect.unwrap(value), (FunctionType, type)):
            source = _source_of(value)
            for needed in _globals_in(source):
                if needed in self._names and (needed != name) and not hasattr(builtins, needed):
                    self._write(needed, self._names[needed])
            return source if value.__name__ == name else f"{source}\n{name} = {value.__name__}"
        if home != _MAIN and home in sys.modules and qualified and getattr(sys.modules[home], qualified, None) is value:
            return f"from {home} import {qualified}" + ("" if qualified == name else f" as {name}")
        if _is_plain(value):
            return f"{name} = {value!r}"
        if type(value) is float:
            return f"{name} = float({str(value)!r})"  # the `repr` of infinity is a name
        what = f"the function uses {name!r}, a {type(value).__name__} that was made in this process"
        raise UsageError(f"{what}, and another one cannot have it", hint=_MAKE_IT_INSIDE)


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list, set, frozenset):
        return all(map(_is_plain, value))
    if type(value) is dict:
        return all(_is_plain(key) and _is_plain(one) for key, one in value.items())
    return type(value) in _PLAIN and not (isinstance(value, (float, complex)) and not cmath.isfinite(value))


def _source_of(value: Any) -> str:
    """The definition of a function or a class as it was written, decorators included."""
    for text in _texts_of(value):
        try:
            tree = ast.parse(text)
        except SyntaxError:  # a cell with a magic line
            continue
        found = [node for node in tree.body if _defines(node, value)]
        if len(found) < _Bindings(value.__name__, tree).number:
            break  # in another way as well, and which of them it is cannot be told
        if found:
            decorators = getattr(found[-1], "decorator_list", [])
            first = min([found[-1].lineno, *(one.lineno for one in decorators)])
            source = "\n".join(text.split("\n")[first - 1 : found[-1].end_lineno])
            is_wrapped = inspect.unwrap(value) is not value and not decorators
            if is_wrapped or (isinstance(found[-1], ast.Assign) and value.__name__ in _globals_in(source)):
                break  # something was made of it since
            return source
    raise UsageError(f"the source of {value.__name__} as it is now is not known here", hint=_MAKE_IT_INSIDE)


class _Bindings(ast.NodeVisitor):
    """A count of the places outside of functions and classes that bind a name, or set an attribute of its object."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self._name, self.number = name, 0
        self.visit(tree)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.number += node.name == self._name

    visit_AsyncFunctionDef = visit_ClassDef = visit_FunctionDef  # noqa: N815

    def visit_Name(self, node: ast.Name) -> None:
        self.number += node.id == self._name and isinstance(node.ctx, ast.Store)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            self.number += node.value.id == self._name
        self.generic_visit(node)


def _defines(node: ast.stmt, value: Any) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return bool(node.name == value.__name__)
    # A class that a call has made, such as a named tuple.
    targets = node.targets if isinstance(node, ast.Assign) and isinstance(value, type) else []
    return any(isinstance(one, ast.Name) and one.id == value.__name__ for one in targets)


def _texts_of(value: Any) -> Iterator[str]:
    """The texts in which its definition may stand, the likeliest first."""
    # `inspect.getsource` finds no class of a notebook (Python 3.11, 3.12); its methods know where they are from.
    members = vars(value).values() if isinstance(value, type) else [value]
    for one in map(inspect.unwrap, members):
        if isinstance(one, FunctionType) and one.__module__ == _MAIN:
            yield "".join(linecache.getlines(one.__code__.co_filename))
    if isinstance(value, type):
        # It may have no methods, or only such as a decorator has made. The history of a notebook is IPython's.
        main = sys.modules[_MAIN]
        yield "".join(linecache.getlines(getattr(main, "__file__", None) or ""))
        yield from reversed(getattr(main, "_ih", []))


def _globals_in(source: str) -> list[str]:
    """The names that a definition looks up outside of itself, in order."""

    def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
        yield table
        for child in table.get_children():
            yield from tables(child)

    found: dict[str, None] = {}
    for table in tables(symtable.symtable(source, "<definition>", "exec")):
        is_top = table.get_type() == "module"
        for symbol in table.get_symbols():
            if symbol.is_referenced() and (is_top or symbol.is_global()):
                found[symbol.get_name()] = None
    return list(found)
