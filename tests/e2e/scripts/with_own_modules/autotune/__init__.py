"""The script's own package, named like ours."""

from .rates import first_rate

__all__ = ["first_rate"]
