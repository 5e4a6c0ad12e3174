"""JSON Schemas of what commands print with ``--json``, from the records that they print."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, Union

from autotune.records.audit import Audit, AuditVerdict
from autotune.records.cards import CardFit
from autotune.records.explanation import Explanation
from autotune.records.gate import Gate, LimitGate, MemoryGate
from autotune.records.look_ahead import LookAhead
from autotune.records.outcome import Outcome
from autotune.records.study import Fit
from autotune.report.record import DescribedScript, Report

__all__ = ["json_page", "schemas"]

_FOLDER = "reference/schemas"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MOST_IN_A_LINE = 110
_SENTENCES = {"sentences": tuple[str, ...]}
_EXIT = {"exit_code": int}


@dataclasses.dataclass(frozen=True)
class _Document:
    """Holds what a command prints: the fields of a record, or of one of several, and others beside them."""

    printed_by: str
    records: tuple[type, ...] = ()
    others: Mapping[str, Any] = dataclasses.field(default_factory=dict)


_DOCUMENTS = {
    "explain": _Document("`autotune explain`", (Explanation,), _SENTENCES),
    "audit": _Document("`autotune audit`", (Audit,), _SENTENCES | {"verdict": AuditVerdict, "baseline": Outcome}),
    "fit": _Document("`autotune fit`", (DescribedScript,), _SENTENCES | {"limit_bytes": int, "fits": tuple[Fit, ...]}),
    "fit-for": _Document(
        "`autotune fit --for`",
        others=_SENTENCES
        | {
            "batch_size": int | None,
            "asked": tuple[str, ...],
            "asked_integers": tuple[str, ...],
            "notes": tuple[str, ...],
            "ahead": LookAhead | None,
            "fits": tuple[CardFit, ...],
        },
    ),
    "gate": _Document(
        "`autotune gate`: of a bundle, of a limit (`--limit`, `--for`), or of two versions of a script (`--against`)",
        (Gate, LimitGate, MemoryGate),
        _EXIT,
    ),
    "run": _Document("`autotune run` and `autotune show STUDY`", (Report,)),
    "error": _Document(
        "each of them where it fails, if it has printed nothing else",
        others={"error": {"message": str, "hint": str | None, "detail": str | None}} | _EXIT,
    ),
}

_HEADER = """\
# JSON

This page is generated (`make docs`). With `--json` a command prints one document on standard output, and all else on
standard error. Each document has a [JSON Schema](https://json-schema.org), made from the records that are printed:
"""
_FOOTER = """
- `sentences` has the answer as a terminal shows it; `run` and errors have none. The first sentence stands by itself.
- Names that end in `_bytes` are in bytes, in `_s` in seconds. Shares are of 1.
- A document has all of its fields. Those without a value are `null`, or empty.
- A later version may add fields: readers skip those that they do not know. [The changelog](../../CHANGELOG.md) names
  fields that were removed, or that mean something else.
- [The exit code](exit-codes.md) tells how a command ended, also without `--json`."""


def json_page() -> str:
    """Return the page that names the schemas."""
    rows = (f"| {one.printed_by} | [{name}.json](schemas/{name}.json) |" for name, one in _DOCUMENTS.items())
    return "\n".join([_HEADER, "| printed by | schema |", "|---|---|", *rows, _FOOTER]) + "\n"


def schemas() -> dict[str, str]:
    """Return the text of each schema by its path below ``docs/``."""
    return {f"{_FOLDER}/{name}.json": _text(_schema(one)) + "\n" for name, one in _DOCUMENTS.items()}


def _text(value: Any, indent: str = "") -> str:
    """Write JSON in which what fits a line stands on one."""
    short = json.dumps(value)
    if not isinstance(value, dict) or len(indent) + len(short) <= _MOST_IN_A_LINE:
        return short
    inner = indent + "  "
    lines = (f"{inner}{json.dumps(key)}: {_text(one, inner)}" for key, one in value.items())
    return "\n".join(["{", ",\n".join(lines), f"{indent}}}"])


def _schema(document: _Document) -> dict[str, Any]:
    defined: dict[str, Any] = {}
    others = _object({name: _of(hint, defined) for name, hint in document.others.items()})
    records = [_of(one, defined) for one in document.records]
    if not records:
        body = others
    elif len(records) == 1 and not document.others:
        body = records[0]
    else:
        one_of = records[0] if len(records) == 1 else {"anyOf": records}
        body = {"allOf": [one_of, others]}
    printed_by = document.printed_by.replace("`", "")
    head = {"$schema": _DIALECT, "title": f"Printed with --json by {printed_by}"}
    return head | body | ({"$defs": dict(sorted(defined.items()))} if defined else {})


def _of(hint: Any, defined: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a type as ``records/codec.py`` writes it."""
    if hint is Any:
        return {}
    if isinstance(hint, dict):
        return _object({name: _of(one, defined) for name, one in hint.items()})
    if dataclasses.is_dataclass(hint):
        return _of_record(typing.cast("type", hint), defined)
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        found = [_of(one, defined) for one in members]
        simple = [one["type"] for one in found if one.keys() == {"type"}]
        return {"type": simple} if len(simple) == len(found) else {"anyOf": found}
    if origin is Literal:
        return {"enum": list(members)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(members[1], defined)}
    if origin is tuple and members[1:] == (...,):
        return {"type": "array", "items": _of(members[0], defined)}
    if origin is tuple:
        parts = [_of(one, defined) for one in members]
        return {"type": "array", "prefixItems": parts, "items": False, "minItems": len(parts)}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}[hint]}


def _of_record(record: type, defined: dict[str, Any]) -> dict[str, Any]:
    name = record.__name__
    if name not in defined:
        defined[name] = {}  # it may hold others of its kind
        hints, remarks = typing.get_type_hints(record), _remarks(record)
        kind = getattr(record, "kind", None)
        properties: dict[str, Any] = {"kind": {"const": kind}} if isinstance(kind, str) else {}
        for field in dataclasses.fields(record):
            told = {"description": _plain(remarks[field.name])} if field.name in remarks else {}
            properties[field.name] = told | _of(hints[field.name], defined)
        defined[name] = {"description": _plain(inspect.getdoc(record) or "")} | _object(properties)
    return {"$ref": f"#/$defs/{name}"}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _remarks(record: type) -> dict[str, str]:
    """Return the comments behind the fields of a record and of those that it extends."""
    found: dict[str, str] = {}
    for one in reversed([base for base in record.__mro__ if dataclasses.is_dataclass(base)]):
        text = textwrap.dedent(inspect.getsource(one))
        lines = text.splitlines()
        (tree,) = ast.parse(text).body
        assert isinstance(tree, ast.ClassDef)
        for node in tree.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = re.search(r"#\s*(.+)$", lines[node.end_lineno - 1]) if node.end_lineno else None
                if comment is not None:
                    found[node.target.id] = comment[1]
    return found


def _plain(text: str) -> str:
    return re.sub(r"\bNone\b", "null", re.sub(r"\s+", " ", text)).replace("``", "`").strip()
