"""A study sent to an experiment tracker: MLflow, Weights & Biases or TensorBoard."""

from .sending import TRACKERS, Sent, send
from .tracked import TrackedRun, TrackedStudy, tracked

__all__ = ["TRACKERS", "Sent", "TrackedRun", "TrackedStudy", "send", "tracked"]
