"""GPUs by name: the memory that processes can have on them, and their compute capability.

Memory is at most the total capacity that torch names in its out-of-memory errors on such cards. It depends on driver
and ECC. Public reports have T4, V100, RTX 4090, RTX 5090, L40S, A100 and H100. The others are estimates, by what such
cards lack of their nominal memory. Capabilities are from NVIDIA's list of CUDA GPUs.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, replace

from ..errors import UsageError
from .look_ahead import BatchPeak, SeenBatch
from .units import format_bytes, parse_bytes

_GIB = 1 << 30
_SIZED = (8, 0)
_SEVERAL = re.compile(r"(?P<number>[1-9]\d*)\s*x\s*(?P<card>[^x].*)")


CARD_ERROR = 0.06
"""How far a peak may be off on another card, as a share: of 447 predictions that others' measurements can be held
against, 92 % were within it (docs/design/absent-gpu.md)."""


@dataclass(frozen=True)
class Card:
    """A GPU. ``memory_bytes`` is all that processes can have; ``name`` is how users write it.

    A script trains on a ``number`` of them, with a process for each.
    """

    name: str
    title: str
    memory_bytes: int
    capability: tuple[int, int]
    num_processors: int
    number: int = 1

    @property
    def threads_per_processor(self) -> int:
        """Return how many threads a multiprocessor holds (CUDA Programming Guide, compute capabilities)."""
        return {(7, 5): 1024}.get(self.capability, 1536 if self.capability[1] or self.capability[0] == 12 else 2048)

    def holds_up_to(self, error: float) -> int:
        """Return the largest peak that fits in bytes, if peaks may be too low by this share of them."""
        return int(self.memory_bytes / (1 + error))


def _card(name: str, title: str, gib: float, capability: tuple[int, int], num_processors: int) -> Card:
    return Card(name, title, int(gib * _GIB), capability, num_processors)


CARDS = {
    card.name: card
    for card in (
        _card("t4-16gb", "Tesla T4", 14.56, (7, 5), 40),
        _card("v100-16gb", "Tesla V100-SXM2-16GB", 15.77, (7, 0), 80),
        _card("v100-32gb", "Tesla V100-SXM2-32GB", 31.73, (7, 0), 80),
        _card("rtx3060-12gb", "NVIDIA GeForce RTX 3060", 11.65, (8, 6), 28),
        _card("rtx3090-24gb", "NVIDIA GeForce RTX 3090", 23.55, (8, 6), 82),
        _card("rtx4080-16gb", "NVIDIA GeForce RTX 4080", 15.57, (8, 9), 76),
        _card("rtx4090-24gb", "NVIDIA GeForce RTX 4090", 23.52, (8, 9), 128),
        _card("rtx5090-32gb", "NVIDIA GeForce RTX 5090", 31.34, (12, 0), 170),
        _card("l4-24gb", "NVIDIA L4", 21.95, (8, 9), 58),
        _card("a10-24gb", "NVIDIA A10", 22.03, (8, 6), 72),
        _card("a6000-48gb", "NVIDIA RTX A6000", 47.4, (8, 6), 84),
        _card("l40s-48gb", "NVIDIA L40S", 44.4, (8, 9), 142),
        _card("a100-40gb", "NVIDIA A100-SXM4-40GB", 39.38, (8, 0), 108),
        _card("a100-80gb", "NVIDIA A100-SXM4-80GB", 79.14, (8, 0), 108),
        _card("h100-80gb", "NVIDIA H100 80GB HBM3", 79.1, (9, 0), 132),
        _card("h200-141gb", "NVIDIA H200", 139.7, (9, 0), 132),
        _card("b200-180gb", "NVIDIA B200", 178.3, (10, 0), 148),
    )
}
"""The known cards by name, the smaller of one generation first."""


def smallest_card(peak_bytes: int, error: float) -> Card | None:
    """Return the card with the least memory that holds a peak, if that may be too low by this share; None if none."""
    holding = (card for card in CARDS.values() if peak_bytes <= card.holds_up_to(error))
    return min(holding, key=lambda card: card.memory_bytes, default=None)


def card_named(title: str, memory_bytes: int) -> Card:
    """Return the known card with a GPU's name, or one of so much memory whose kernels are an A100's."""
    found = next((card for card in CARDS.values() if card.title == title), None)
    return found or replace(_of_size(memory_bytes), title=title)


def read_cards(text: str) -> tuple[Card, ...]:
    """Read names of cards with commas between; a size such as ``48GiB`` stands for any card of that memory.

    Several of a card are written as ``8xh100-80gb``.

    Raises:
        UsageError: a name is not known, or none is given.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("no card is named", hint=f"one or more of {', '.join(CARDS)}, or a size such as 48GiB")
    return tuple(dict.fromkeys(map(_read_card, names)))


def _read_card(name: str) -> Card:
    several = _SEVERAL.fullmatch(name)
    if several is not None:
        card, number = _read_card(several["card"]), int(several["number"])
        return card if number == 1 else replace(card, name=f"{number}x{card.name}", number=number)
    found = CARDS.get(name) or CARDS.get(f"{name}b")
    if found is not None:
        return found
    if name[0].isdigit():
        return _of_size(parse_bytes(name))
    alike = [card for card in CARDS if card.split("-")[0] == name] or difflib.get_close_matches(name, CARDS, cutoff=0.3)
    raise UsageError(
        f"there is no card {name!r} in autotune's list",
        hint=f"did you mean {' or '.join(alike or CARDS)}? A size such as 48GiB stands for any card of that memory.",
    )


def _of_size(memory_bytes: int) -> Card:
    name = format_bytes(memory_bytes).replace(" ", "")
    return Card(name, "a GPU", memory_bytes, _SIZED, CARDS["a100-40gb"].num_processors)


@dataclass(frozen=True)
class CardPeak:
    """The peak at a batch size, None for one that is not known, with so many of the model's blocks checkpointed.

    ``roomy_bytes`` is the peak on a card with room for all that torch caches. ``peak_bytes`` is the peak on the card
    itself: once it is full, torch frees what it has cached. If freeing does not suffice, both are the same.
    ``fits``: the card should hold it.
    """

    batch_size: int | None
    blocks: int
    roomy_bytes: int
    peak_bytes: int
    fits: bool


@dataclass(frozen=True)
class Way:
    """Hold what a script needs on a card, as it is or with its blocks checkpointed.

    ``own`` is the peak at the script's own batch size, ``largest`` that at the largest batch size which should fit the
    card; None where none does. If other sizes than its own are not told, ``own_alone`` is the reason. If it is not
    memory that ends the search for the largest, ``beyond`` is why larger sizes could not be followed.
    """

    own: CardPeak
    largest: CardPeak | None
    own_alone: str = ""
    beyond: str = ""


@dataclass(frozen=True)
class CardFit:
    """Hold the prediction for a card; peaks are bytes of all that the script's process has there, context included.

    ``plain`` is the script as it is, None where it cannot run on the card, for which ``problem`` is the reason.
    ``checkpointed`` is the script with the blocks checkpointed that repeat in its model; None where there are none.
    ``fewest`` has the fewest of them with which the card should hold the script's own batch size; None where it does
    without any, or with none.
    ``expandable`` is the script as it is, at its own batch size, with expandable segments; None where it has them.
    ``error`` is how far a peak may be off, as a share of it: a script fits if it does in so much less memory.
    ``batches`` are those with which the peak rises, where an epoch was read ahead. The tensors of half of all its
    batches need ``half_bytes`` at most, those of nine in ten ``nine_in_ten_bytes``; ``batches_over`` is of how many
    they alone need more than the card has. ``runs_out_at`` is the batch at which memory runs out, in the epoch
    ``runs_out_in_epoch``; None where it does not. ``cut_to`` is the largest batch if all are cut so that the card
    should hold them; None where that was not looked for, or is not known.
    """

    card: Card
    plain: Way | None
    checkpointed: Way | None = None
    fewest: CardPeak | None = None
    expandable: CardPeak | None = None
    error: float = 0.0
    problem: str = ""
    batches: tuple[BatchPeak, ...] = ()
    half_bytes: int = 0
    nine_in_ten_bytes: int = 0
    batches_over: int = 0
    runs_out_at: SeenBatch | None = None
    runs_out_in_epoch: int = 1
    cut_to: SeenBatch | None = None

    def interval(self, peak: CardPeak) -> tuple[int, int]:
        """Return the least and the most that a peak may be in bytes; one that fits is at most the card's memory."""
        low, high = int(peak.peak_bytes * (1 - self.error)), int(peak.peak_bytes * (1 + self.error))
        # With what the allocator can free there, it does even if peaks are so much higher.
        return low, min(high, self.card.memory_bytes) if peak.fits else high

    @property
    def is_crowded(self) -> bool:
        """Return whether the card holds the script's own batch size only if torch frees what it has cached."""
        own = None if self.plain is None else self.plain.own
        return own is not None and own.fits and own.roomy_bytes > self.card.memory_bytes
