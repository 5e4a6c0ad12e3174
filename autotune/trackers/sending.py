"""The experiment trackers, and their common part: the place of a sent study, and the errors of sending it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from ..errors import AutotuneError, RunError, UsageError
from .tracked import TrackedStudy

TRACKERS: Mapping[str, str] = {
    "mlflow": "MLflow",
    "wandb": "Weights & Biases",
    "tensorboard": "TensorBoard",
}
"""Each a module of this package with a function ``send``, and an extra of the distribution; with its full name."""


@dataclass(frozen=True)
class Sent:
    """The place of a study in a tracker: ``where`` is an address or a folder, ``look`` the command that shows it.

    ``new`` counts the trials that were sent now.
    """

    where: str
    look: str
    new: int


def send(study: TrackedStudy, to: str, *, folder: Path, bundle: Path | None) -> Sent:
    """Send a study to a tracker. A study that is sent again is there once, as it stands by then.

    Args:
        study: what to send.
        to: one of ``TRACKERS``.
        folder: where trackers that are files write them.
        bundle: the folder of the study's bundle, kept with the study where the tracker keeps files.

    Raises:
        UsageError: the tracker's package is not installed.
        RunError: the tracker cannot be reached, or has refused.
    """
    try:
        module = import_module(f"{__package__}.{to}")
    except ImportError as error:
        raise UsageError(
            f"{TRACKERS[to]} cannot be used here: {error}", hint=f"pip install 'autotune-memory[{to}]'"
        ) from None
    sender: Callable[..., Sent] = module.send
    try:
        return sender(study, folder=folder, bundle=bundle)
    except AutotuneError:
        raise
    except Exception as error:  # a tracker's client may raise anything: its own, its transport's, the disk's
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RunError(
            f"{TRACKERS[to]} did not take the study: {lines[0]}",
            hint=module.NEXT,
        ) from error
