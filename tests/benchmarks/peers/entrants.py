"""Who is compared: what each does to a script's model, and how it comes to its batch size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from . import batches
from .record import AUTOTUNE, NOTHING

REFERENCE = "best batch"
"""The peer that the others are held against: the script's best batch without recompute."""

BUDGETS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Peer:
    """A peer: ``what`` it does to the model (see ``drive.py``), and how its batch size is chosen.

    ``choice`` is a rule of ours; or a library's ``finder`` decides; or it is the ``bundle``'s. One that cannot be had
    here ``needs`` something: a package, and what a script would need beside it.
    """

    name: str
    what: str
    choice: batches.Choice | None = None
    finder: Literal["", "accelerate", "lightning", "lightning-binsearch"] = ""
    needs: tuple[str, str] | None = None


PEERS: dict[str, Peer] = {
    one.name: one
    for one in (
        Peer("script", NOTHING, batches.own),
        Peer(REFERENCE, NOTHING, batches.best),
        Peer("checkpoint all", "checkpoint:1", batches.best),
        Peer("checkpoint every 2nd", "checkpoint:2", batches.best),
        Peer("checkpoint every 3rd", "checkpoint:3", batches.best),
        Peer("by hand", "checkpoint:1", batches.doubled),
        Peer("compile", "compile", batches.best),
        *(Peer(f"compile, budget {budget}", f"compile:{budget}", batches.best) for budget in BUDGETS),
        Peer("accelerate", NOTHING, finder="accelerate"),
        Peer("lightning", NOTHING, finder="lightning"),
        Peer("lightning binsearch", NOTHING, finder="lightning-binsearch"),
        Peer(
            "deepspeed autotuner",
            NOTHING,
            needs=("deepspeed", "a script that trains through deepspeed.initialize, and this one does not"),
        ),
        Peer("transformers", "transformers", batches.best),
        Peer("transformers every 2nd", "transformers:every_n_layers=2", batches.best),
        Peer("transformers offload", "transformers:offload=True", batches.best),
        Peer("autotune", AUTOTUNE),
    )
}
