"""The page of the public functions, from their signatures and docstrings: nothing is imported, so torch need not be."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

__all__ = ["python_page"]

# What the functions give, in the order of the functions: the module below the package, and the class.
_GIVEN = (
    ("api/applying.py", "Applied"),
    ("worker/measuring/inspection.py", "MemoryInspection"),
    ("worker/measuring/saved.py", "SavedRow"),
    ("worker/measuring/memory_matrix.py", "ModelMatrix"),
    ("api/tuning.py", "Tuned"),
    ("report/record.py", "ReportedSetting"),
    ("records/figures.py", "Figures"),
)
_SECTIONS = {"Args": "Arguments:", "Raises": "Raises:", "Returns": "Gives:"}
_HEADER = """\
# Python

This page is generated from the functions themselves (`make docs`). [The guide](../guides/python.md) shows them at work.
`autotune.errors` has what they raise, each an `AutotuneError` with a `hint`, the next thing to do, and a `detail`."""


def python_page(package: Path) -> str:
    """The page: every function of the package, then the classes of what they give."""
    tree = ast.parse((package / "__init__.py").read_text(encoding="utf-8"))
    parts = [_HEADER]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            parts += [f"## autotune.{node.name}", _signature(node, f"autotune.{node.name}"), *_prose(node)]
    for file, name in _GIVEN:
        classes = ast.parse((package / file).read_text(encoding="utf-8")).body
        parts += _class(next(node for node in classes if isinstance(node, ast.ClassDef) and node.name == name))
    return "\n\n".join(parts) + "\n"


def _class(node: ast.ClassDef) -> Iterator[str]:
    yield f"## {node.name}"
    yield from _prose(node)
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    named = [(ast.unparse(one.target), ast.unparse(one.annotation)) for one in fields]
    shown = [f"- `{name}`: `{kind}`" for name, kind in named if not name.startswith("_")]
    if shown:
        base = "".join(f", and those of `{one.id}`" for one in node.bases if isinstance(one, ast.Name))
        yield "\n".join([f"Fields{base}:", "", *shown])
    methods = [one for one in node.body if isinstance(one, ast.FunctionDef) and not one.name.startswith("_")]
    if methods:
        yield "\n".join(["Methods and properties:", "", *map(_method, methods)])


def _method(method: ast.FunctionDef) -> str:
    is_property = any(isinstance(one, ast.Name) and one.id == "property" for one in method.decorator_list)
    called = method.name if is_property else _called(method)
    return f"- `{called}`: {_spans(' '.join((ast.get_docstring(method) or '').split()))}"


def _signature(node: ast.FunctionDef, name: str) -> str:
    """The function as it is called, a parameter a line."""
    gives = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    parameters = _parameters(node.args)
    inside = "".join(f"    {one},\n" for one in parameters)
    return f"```python\n{name}({f'{chr(10)}{inside}' if inside else ''}){gives}\n```"


def _parameters(arguments: ast.arguments) -> list[str]:
    """Each parameter as it was written, and the marks between them."""
    plain = len(arguments.args) - len(arguments.defaults)
    shown = [
        _parameter(one, None if number < plain else arguments.defaults[number - plain])
        for number, one in enumerate(arguments.args)
    ]
    if arguments.vararg is not None:
        shown.append(f"*{_parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        shown.append("*")
    shown += [
        _parameter(one, default) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        shown.append(f"**{_parameter(arguments.kwarg, None)}")
    return shown


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    text = ast.unparse(argument)
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _called(method: ast.FunctionDef) -> str:
    names = [one.arg for one in method.args.args if one.arg != "self"]
    names += [f"*{one.arg}" for one in (method.args.vararg,) if one is not None]
    names += [f"**{one.arg}" for one in (method.args.kwarg,) if one is not None]
    return f"{method.name}({', '.join(names)})"


def _prose(node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    """A docstring as Markdown: its paragraphs, its blocks of code, and its sections as lists."""
    paragraphs = re.split(r"\n\n", ast.get_docstring(node) or "")
    is_code_next = False
    for paragraph in paragraphs:
        name, _, rest = paragraph.partition(":\n")
        if is_code_next and paragraph.startswith("    "):
            body = textwrap.dedent(paragraph)
            yield f"```{'python' if 'autotune.' in body else 'text'}\n{body}\n```"
            continue
        is_code_next = paragraph.endswith("::")
        if name in _SECTIONS:
            yield "\n".join([_SECTIONS[name], "", *_items(textwrap.dedent(rest))])
        else:
            yield _spans(paragraph.removesuffix(":") if is_code_next else paragraph)


def _items(section: str) -> list[str]:
    found = re.findall(r"^(\w+): (.*(?:\n .*)*)", section, re.MULTILINE)
    return [f"- `{name}`: {_spans(' '.join(text.split()))}" for name, text in found]


def _spans(text: str) -> str:
    return text.replace("``", "`")
