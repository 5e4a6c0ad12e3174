"""Whether data show that a batch size took effect."""

from __future__ import annotations

import pytest

from autotune.records.arrivals import Arrivals, Arrived, why_ineffective


def told(own: Arrived | tuple[Arrived, ...], now: Arrived | tuple[Arrived, ...], batch_size: int = 32) -> str:
    before, after = (each if isinstance(each, tuple) else (each,) for each in (own, now))
    return why_ineffective(Arrivals(16, before), after, batch_size)


def fixed(elements: int, shape: tuple[int, ...] = (), name: str = "Net 0") -> Arrived:
    return Arrived(name, elements, 0.0, elements, shape)


def varying(elements: float, error: float = 0.02) -> Arrived:
    return Arrived("Net 0", elements, error)


@pytest.mark.parametrize(
    ("own", "now", "batch_size"),
    [
        (fixed(160), fixed(320), 32),
        (fixed(160), fixed(80), 8),
        (fixed(160), fixed(360), 32),  # longer sequences, and so more padding
        (varying(160), varying(190), 32),  # graphs share neighbours
        (Arrived("Net 0", 205, 0.22, 256), varying(341, 0.34), 32),  # three batches, of which the last is small
        (varying(160, 0.05), varying(161, 0.05), 20),  # too near to tell
        (varying(160, 0.2), varying(170, 0.2), 32),
        (fixed(160), fixed(160), 16),
        (fixed(160), fixed(160, name="Other 0"), 32),  # nothing to compare
        ((fixed(160), fixed(900, name="Net 1")), (fixed(320), fixed(900, name="Net 1")), 32),
    ],
)
def test_what_follows_the_size_is_believed(
    own: Arrived | tuple[Arrived, ...], now: Arrived | tuple[Arrived, ...], batch_size: int
) -> None:
    assert told(own, now, batch_size) == ""


@pytest.mark.parametrize(
    ("own", "now", "batch_size", "expected"),
    [
        (fixed(160, (16, 10)), fixed(160, (16, 10)), 32, "(a tensor of 16x10 at both)"),
        (fixed(160), fixed(160), 8, "brings as much data to the model as at batch size 16"),
        (fixed(160), fixed(240), 32, "brings 1.5 times the data of batch size 16"),
        (varying(160), varying(170), 32, "brings as much data"),
        (varying(160), varying(150), 8, "brings as much data"),
        (varying(160, 0.001), varying(161, 0.001), 20, "brings as much data"),
        (varying(160, 0.2), varying(170, 0.2), 256, "brings as much data"),
    ],
)
def test_what_does_not_follow_it_is_told(own: Arrived, now: Arrived, batch_size: int, expected: str) -> None:
    assert expected in told(own, now, batch_size)
