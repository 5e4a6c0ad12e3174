"""Frozen dataclasses to JSON and back, driven by their type hints.

Tagged unions are dataclasses with a class variable ``kind``, told apart by the key ``"kind"``. Reading is strict about
types and missing keys, and lenient about unknown keys: an older reader can read a newer writer that only adds fields.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
import types
import typing
from typing import Any, Literal, TypeVar, Union

from ..errors import FormatError

T = TypeVar("T")

# How Python has such bytes in its strings (PEP 383).
_SURROGATE = re.compile("[\ud800-\udfff]")


def to_json(value: Any) -> Any:
    """Return the JSON form of a record; FormatError for a float that is not finite."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = getattr(value, "kind", None)
        head = {"kind": kind} if isinstance(kind, str) else {}
        return head | {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"{value!r} has no JSON form")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise FormatError(f"a {type(value).__name__} has no JSON form: {value!r}")


def from_json(cls: type[T] | Any, data: Any, *, where: str = "") -> T:
    """Rebuild a record of type ``cls`` (a dataclass, or a union of tagged ones) from its JSON form."""
    built: T = _read(cls, data, where or getattr(cls, "__name__", "record"))
    return built


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Write a record as a JSON string: one line, or indented for people."""
    separators = (",", ":") if indent is None else None
    return encodable(json.dumps(to_json(value), indent=indent, separators=separators, ensure_ascii=False))


def encodable(text: str) -> str:
    """Escape in JSON text the bytes of names that are no UTF-8: it can be encoded then, and reads back the same."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def loads(cls: type[T] | Any, text: str | bytes, *, where: str = "") -> T:
    """Read a record from a JSON string; FormatError says where the text or the shape is wrong."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where or 'text'}: not JSON: {error}") from None
    built: T = from_json(cls, data, where=where)
    return built


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, Any, bool], ...]:
    """Return name and type of a dataclass's fields, and whether they have to be there."""
    hints, missing = typing.get_type_hints(cls), dataclasses.MISSING
    fields = dataclasses.fields(cls)
    return tuple((one.name, hints[one.name], one.default is one.default_factory is missing) for one in fields)


def _read(hint: Any, data: Any, where: str) -> Any:
    if hint is Any:
        return data
    origin = typing.get_origin(hint)
    if origin is Union or origin is types.UnionType:
        return _read_union(typing.get_args(hint), data, where)
    if origin is Literal:
        if data in typing.get_args(hint):
            return data
        raise FormatError(f"{where}: {data!r} is none of {typing.get_args(hint)}")
    if origin is tuple:
        return _read_tuple(typing.get_args(hint), data, where)
    if origin is dict:
        _expect(isinstance(data, dict), where, "an object", data)
        value_hint = typing.get_args(hint)[1]
        return {key: _read(value_hint, item, f"{where}.{key}") for key, item in data.items()}
    if dataclasses.is_dataclass(hint):
        return _read_dataclass(hint, data, where)
    return _read_scalar(hint, data, where)


def _read_union(members: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in members:
        return None
    rest = [member for member in members if member is not type(None)]
    if len(rest) == 1:
        return _read(rest[0], data, where)
    if all(dataclasses.is_dataclass(member) for member in rest):
        _expect(isinstance(data, dict), where, "an object", data)
        for member in rest:
            if getattr(member, "kind", None) == data.get("kind"):
                return _read(member, data, where)
        raise FormatError(f"{where}: unknown kind {data.get('kind')!r}")
    for member in rest:
        try:
            return _read(member, data, where)
        except FormatError:
            continue
    raise FormatError(f"{where}: {data!r} fits none of {rest}")


def _read_tuple(members: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(isinstance(data, list), where, "a list", data)
    if len(members) == 2 and members[1] is Ellipsis:
        if members[0] in (int, float) and {*map(type, data)} <= {members[0]}:  # raw samples: most of all that is read
            return tuple(data)
        members = (members[0],) * len(data)
    _expect(len(data) == len(members), where, f"a list of {len(members)}", data)
    return tuple(
        _read(member, item, f"{where}[{i}]") for i, (member, item) in enumerate(zip(members, data, strict=True))
    )


def _read_dataclass(cls: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), where, "an object", data)
    arguments = {}
    for name, hint, is_needed in _fields(cls):
        if name in data:
            arguments[name] = _read(hint, data[name], f"{where}.{name}")
        elif is_needed:
            raise FormatError(f"{where}: {name!r} is missing")
    return cls(**arguments)


def _read_scalar(hint: Any, data: Any, where: str) -> Any:
    if hint is float:
        _expect(isinstance(data, (int, float)) and not isinstance(data, bool), where, "a number", data)
        return float(data)
    if hint is int:
        _expect(isinstance(data, int) and not isinstance(data, bool), where, "an integer", data)
        return data
    _expect(isinstance(data, hint), where, f"a {hint.__name__}", data)
    return data


def _expect(holds: bool, where: str, wanted: str, data: Any) -> None:
    if not holds:
        raise FormatError(f"{where}: expected {wanted}, got {data!r}")
