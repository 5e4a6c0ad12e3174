"""Choices by name: those that an engine has, and those that a configuration makes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ..errors import UsageError, did_you_mean
from .choice import Choice, RefusedChoice
from .choices import ENGINES_CHOICES, EngineChoice
from .conversion import ConversionChoice
from .engines import ENGINES, Engine
from .inference import Conversion

_CORRECT = "correct it where it comes from"


def choices_of(engine: Engine) -> dict[str, Choice]:
    """Return the choices of an engine that can be had."""
    return {one.name: one for one in ENGINES_CHOICES[engine] if isinstance(one, Choice)}


def refused_choices(engine: Engine) -> dict[str, RefusedChoice]:
    """Return the choices of an engine that cannot be had."""
    return {one.name: one for one in ENGINES_CHOICES[engine] if isinstance(one, RefusedChoice)}


def engine_choices(engine: Engine) -> dict[str, EngineChoice]:
    """Return the choices of an engine that have another one run the model."""
    return {name: one for name, one in choices_of(engine).items() if isinstance(one, EngineChoice)}


def choice_variables() -> dict[str, re.Pattern[str]]:
    """Return the environment variables that make choices of any engine, each with the values that it may have."""
    known = (choice for engine in ENGINES for choice in choices_of(engine).values())
    return {name: values for choice in known for name, values in choice.variables.items()}


def allowed_choices(engine: Engine, names: Iterable[str]) -> tuple[str, ...]:
    """Check the choices that a search may try both ways, and keep each once; UsageError for one that cannot be had."""
    known, refused = choices_of(engine), refused_choices(engine)
    for name in names:
        if name in refused:
            raise UsageError(f"{name!r} cannot be had: {refused[name].refusal}", hint="leave it out")
        if name not in known:
            hint = f"it has {', '.join(known) or 'none'}"
            if meant := did_you_mean(name, known):
                hint = f"{meant} {hint[0].upper()}{hint[1:]}"
            raise UsageError(f"engine {engine!r} has no choice {name!r}", hint=hint)
    return tuple(dict.fromkeys(names))


def made_choices(engine: Engine, choices: Iterable[str]) -> dict[Choice, str]:
    """Return the choices that are made otherwise than by default, of some each ``name=value``, with their values.

    UsageError for one that the engine does not have, cannot have or has twice, and for two that exclude each other.
    """
    known = choices_of(engine)
    made: dict[str, str] = {}
    for choice in choices:
        name, _, value = choice.partition("=")
        allowed_choices(engine, [name])
        if not known[name].takes(value):
            raise UsageError(f"choice {name!r} has no value {value!r}", hint=_CORRECT)
        if name in made:
            raise UsageError(f"{name!r} is chosen twice", hint=_CORRECT)
        made[name] = value
    on = [name for name, value in made.items() if value != "0"]
    for name in on:
        both = next((other for other in on if other in known[name].excludes), None)
        if both is not None:
            raise UsageError(f"{name!r} and {both!r} exclude each other", hint=_CORRECT)
    return {known[name]: value for name, value in made.items() if int(value) != known[name].default}


def converted_by(engine: Engine, choices: Iterable[str]) -> Conversion | None:
    """Return what choices that were made convert a model to; UsageError as in ``made_choices``."""
    made = made_choices(engine, choices)
    return next((choice.conversion for choice in made if isinstance(choice, ConversionChoice)), None)


def choice_settings(engine: Engine, choices: Iterable[str], before: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of choices that were made, which keep what else they hold ``before``.

    UsageError as in ``made_choices``.
    """
    settings: dict[str, str] = {}
    for choice, value in made_choices(engine, choices).items():
        settings |= choice.variables_for(value, {**before, **settings})
    return settings
