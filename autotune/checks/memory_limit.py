"""A memory limit that nothing that is searched can meet."""

from __future__ import annotations

from ..errors import RunError
from ..records.facts import Facts
from ..records.inference import InferenceFacts
from ..records.units import format_bytes


def check_limit(facts: Facts, limit_bytes: int, *, name: str = "limit") -> None:
    """RunError if not even what no setting changes fits: a script's parameters and their like, a model's weights.

    ``name`` is what the limit is called.
    """
    if facts.inference is not None:
        _check_model(facts.inference, limit_bytes, name)
        return
    fixed = 0 if facts.split is None else facts.split.state
    if fixed > limit_bytes:
        raise RunError(
            f"parameters, gradients and optimizer state alone need {format_bytes(fixed)}, "
            f"{format_bytes(fixed - limit_bytes)} more than the {name} of {format_bytes(limit_bytes)}",
            hint="recompute plans and batch size only change activations; give a higher --memory-limit "
            "or --target-memory",
        )


def _check_model(inference: InferenceFacts, limit_bytes: int, name: str) -> None:
    """Weights count as they are in the smallest model that was allowed, on top of what was there before the session."""
    converted = [one.bytes for one in inference.conversions if not one.refusal]
    weights = min([inference.weight_bytes, *converted])
    before = next((one.resident for one in inference.moments if one.phase == "before"), 0)
    if before + weights > limit_bytes:
        raise RunError(
            f"the model's weights alone need {format_bytes(weights)}, and Python with ONNX Runtime "
            f"{format_bytes(before)}: {format_bytes(before + weights - limit_bytes)} more than the {name} of "
            f"{format_bytes(limit_bytes)}",
            hint="give a higher --memory-limit or --target-memory, or allow smaller weights with --allow int8",
        )
