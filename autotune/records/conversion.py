"""Choices of what an ONNX model is converted to, which change what it computes."""

from __future__ import annotations

from dataclasses import dataclass

from .choice_types import Choice, StackLine
from .facts import Facts
from .inference import Conversion


@dataclass(frozen=True, kw_only=True)
class ConversionChoice(Choice):
    """One conversion; how far it takes outputs from the model's own is measured before it is tried."""

    conversion: Conversion

    def values_for(self, facts: Facts) -> tuple[int, ...]:
        """Leave it out where discovery could not make it, or found outputs that are too far off."""
        found = () if facts.inference is None else facts.inference.conversions
        return (0,) if any(one.name == self.conversion and one.refusal for one in found) else (0, 1)

    def stack_line(self, value: str) -> StackLine:
        """Say it around the model."""
        del value
        return StackLine("model", {"to": self.conversion}, layer="conversion")


CONVERSIONS: tuple[ConversionChoice, ...] = (
    ConversionChoice(
        name="fp16",
        does="the model in float16, but for its inputs and outputs (changes what is computed)",
        conversion="fp16",
        excludes=("int8", "int8-static"),
        changes=(
            "weights and what is computed are float16, with 11 significant bits in place of 24 and nothing above 65504."
        ),
    ),
    ConversionChoice(
        name="int8",
        does="weights in 8 bits, and ranges found at each run (changes what is computed)",
        conversion="int8",
        excludes=("fp16", "int8-static"),
        changes="matrix products are computed in whole numbers of 8 bits, scaled by the range that each run has.",
    ),
    ConversionChoice(
        name="int8-static",
        does="weights in 8 bits, and ranges found on --inputs (changes what is computed)",
        conversion="int8-static",
        excludes=("fp16", "int8"),
        changes=(
            "operators compute in whole numbers of 8 bits, scaled by the ranges that half of the inputs had. What "
            "others have beyond those is cut off."
        ),
    ),
)
