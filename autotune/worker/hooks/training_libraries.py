"""Numbers that a library holds for the script: its accumulation, set as it is made, and its batch size.

Nothing is imported here: a library may be in the middle of its own import of torch.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from ...records.facts import AccumulationControl
from ..refusal import note_once

_NOTHING_SETS_IT = (
    "nothing is known that sets it; where the script's arguments take it, put {accumulation:4} there, with the "
    "script's own number"
)


@dataclass(frozen=True)
class _Library:
    """A library that accumulates: a script trains by it if it calls the method ``trains`` of an ``owner``."""

    how: Literal["transformers", "lightning", "accelerate"]
    title: str  # of the object that holds the number
    modules: tuple[str, ...]  # which may have the class ``owner``
    owner: str
    trains: str
    attribute: str  # the number, as a path from the owner
    made: tuple[tuple[str, ...], str, str]  # modules, class and method that make the number
    is_before: bool = False  # the number has to be set before that method looks at it
    batch_size: str = ""  # a batch size of the library's own, as a path from the owner
    tells: str = ""  # where the library tells that batch size


def _number(used: Any, attribute: str) -> int | None:
    """Return an attribute, at the end of a path of them; None where this version of a library has no such number."""
    for name in attribute.split("."):
        used = getattr(used, name, None)
    return used if isinstance(used, int) and used > 0 else None


_LIGHTNING = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")

# In this order of precedence: transformers' Trainer has an Accelerator of its own, which accumulates nothing.
_LIBRARIES = (
    _Library(
        how="transformers",
        title="transformers' TrainingArguments",
        modules=("transformers.trainer",),
        owner="Trainer",
        trains="train",
        attribute="args.gradient_accumulation_steps",
        made=(("transformers.training_args",), "TrainingArguments", "__post_init__"),
        is_before=True,
        batch_size="args.per_device_train_batch_size",
        tells="in its log, in trainer_state.json, and in samples per second where max_steps is set",
    ),
    _Library(
        how="lightning",
        title="Lightning's Trainer",
        modules=_LIGHTNING,
        owner="Trainer",
        trains="fit",
        attribute="accumulate_grad_batches",
        made=(_LIGHTNING, "Trainer", "__init__"),
    ),
    # An Accelerator divides the loss by its number, but accumulates only where the script has it do so.
    _Library(
        how="accelerate",
        title="Accelerate's Accelerator",
        modules=("accelerate.accelerator",),
        owner="Accelerator",
        trains="accumulate",
        attribute="gradient_accumulation_steps",
        made=(("accelerate.accelerator",), "Accelerator", "__init__"),
    ),
)


@dataclass
class _Used:
    """An object that a script trains by, weakly held, and the number that it had when it was first seen to train."""

    library: _Library
    reference: Callable[[], Any]
    number: int | None


# For a whole process: what is asked for, in which library, what the script was seen to train by, and the batch size of
# loaders that are resized, of which a library knows nothing.
_asked: tuple[int | None, str] = (None, "none")
_batch_size: int | None = None
_used: list[_Used] = []


def choose(accumulation: int | None, control: AccumulationControl | None, batch_size: int | None = None) -> None:
    """Choose what objects of the library that ``control`` names are made with; None leaves that to the script.

    ``batch_size`` is what loaders are resized to: a note says where a library tells another one.
    """
    global _asked, _batch_size  # noqa: PLW0603
    _asked = accumulation, "none" if control is None else control.how
    _batch_size = batch_size
    _used.clear()


def control(given: AccumulationControl | None, seen: float) -> AccumulationControl:
    """Return how the script's accumulation can be set.

    ``given`` is the control by the script's arguments, if they have one. Arguments and libraries have to say the number
    of micro-batches that a step was ``seen`` to take.
    """
    steps = int(seen) if float(seen).is_integer() else None
    taken = f"an optimizer step takes {seen:.3g}"
    if given is not None:
        said = f"the arguments say {given.steps}, but {taken}"
        return given if given.steps == steps else AccumulationControl("none", steps, said)
    for library in _LIBRARIES:
        for used in reversed([one for one in _used if one.library is library]):
            number = _number(used.reference(), library.attribute) or used.number
            if number is not None and number == steps:
                return AccumulationControl(library.how, number)
            if number is not None:
                return AccumulationControl("none", steps, f"{library.title} says {number}, but {taken}")
    return AccumulationControl("none", steps, _NOTHING_SETS_IT)


def patch(module: str) -> None:
    """Patch the classes of a library's module, which the script has just imported."""
    for library in _LIBRARIES:
        modules, owner, method = library.made
        if module in modules:
            wrap(module, owner, method, functools.partial(_set, library), is_before=library.is_before)
        if module in library.modules:
            wrap(module, library.owner, library.trains, functools.partial(_note, library), is_before=True)


def trains_by(how: str) -> bool:
    """Return whether the script was seen to train by the library that is named like a control."""
    return any(one.library.how == how for one in _used)


def wrap(module: str, owner: str, method: str, action: Callable[[Any], None], *, is_before: bool) -> None:
    """Have ``action`` called with the object around a method; nothing where this version has no such method."""
    cls = getattr(sys.modules[module], owner, None)
    original = getattr(cls, method, None)
    if original is None:
        return

    @functools.wraps(original)
    def wrapped(own: Any, *arguments: Any, **keywords: Any) -> Any:
        if is_before:
            action(own)
        result = original(own, *arguments, **keywords)
        if not is_before:
            action(own)
        return result

    setattr(cls, method, wrapped)


def _set(library: _Library, made: Any) -> None:
    accumulation, how = _asked
    name = library.attribute.rpartition(".")[2]
    if accumulation is not None and how == library.how and hasattr(made, name):
        setattr(made, name, accumulation)


def _note(library: _Library, used: Any) -> None:
    own = _number(used, library.batch_size) if library.batch_size else None
    if _batch_size is not None and own not in (None, _batch_size) and os.environ.get("RANK", "0") == "0":
        title = f"{library.how}' {library.owner}"
        note_once(
            f"autotune: note: {title} tells a batch size of {own} ({library.tells}); it trains with {_batch_size}\n"
        )
    if not any(one.reference() is used for one in _used):
        _used.append(_Used(library, weakref.ref(used), _number(used, library.attribute)))
