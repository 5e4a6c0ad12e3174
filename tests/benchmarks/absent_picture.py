"""The picture of peaks predicted for a card that is not there, beside peaks that were measured on it, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

_SIZE, _LEFT, _TOP = 420.0, 66.0, 56.0
_WIDTH, _HEIGHT = _LEFT + _SIZE + 24, _TOP + _SIZE + 62
_LOW_GIB, _HIGH_GIB = 0.5, 48.0
_TICKS_GIB = (1, 2, 4, 8, 16, 32)
_PREDICTED, _OTHER = "#1a6f5c", "#b9b2a6"
_FONT = "font-family='Helvetica, Arial, sans-serif' font-size='13' fill='#333'"


def draw(
    measured: Sequence[float], predicted: Sequence[float], others: Sequence[float], other: str, path: Path
) -> None:
    """Draw predictions and another tool's estimates of the same peaks, all in GiB; ``other`` is its name."""

    def place(gib: float) -> float:
        return _SIZE * math.log(max(gib, _LOW_GIB) / _LOW_GIB) / math.log(_HIGH_GIB / _LOW_GIB)

    def dots(found: Sequence[float], color: str) -> list[str]:
        return [
            f"<circle cx='{_LEFT + place(was):.1f}' cy='{_TOP + _SIZE - place(told):.1f}' r='2.4' fill='{color}' "
            "fill-opacity='0.6'/>"
            for was, told in zip(measured, found, strict=True)
        ]

    lines = []
    for gib in _TICKS_GIB:
        at, up = _LEFT + place(gib), _TOP + _SIZE - place(gib)
        lines += [
            f"<path d='M{at:.1f} {_TOP}V{_TOP + _SIZE}M{_LEFT} {up:.1f}H{_LEFT + _SIZE}' stroke='#e7e3dc'/>",
            f"<text x='{at:.1f}' y='{_TOP + _SIZE + 19}' text-anchor='middle' {_FONT}>{gib}</text>",
            f"<text x='{_LEFT - 9}' y='{up + 4:.1f}' text-anchor='end' {_FONT}>{gib}</text>",
        ]
    bottom, upwards = _TOP + _SIZE, f"transform='translate(20 {_TOP + _SIZE / 2}) rotate(-90)'"
    parts = [
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH:.0f} {_HEIGHT:.0f}' width='{_WIDTH:.0f}'>",
        f"<rect width='{_WIDTH:.0f}' height='{_HEIGHT:.0f}' fill='white'/>",
        *lines,
        f"<path d='M{_LEFT} {bottom}L{_LEFT + _SIZE} {_TOP}' stroke='#333' stroke-width='0.8'/>",
        *dots(others, _OTHER),
        *dots(predicted, _PREDICTED),
        *_key(20, _PREDICTED, "autotune, without a GPU"),
        *_key(40, _OTHER, other),
        f"<text x='{_LEFT + _SIZE / 2}' y='{bottom + 44}' text-anchor='middle' {_FONT}>peak measured, GiB</text>",
        f"<text {upwards} text-anchor='middle' {_FONT}>peak predicted, GiB</text>",
        "</svg>",
    ]
    path.write_text("\n".join(parts) + "\n")


def _key(y: int, color: str, text: str) -> list[str]:
    return [
        f"<circle cx='{_LEFT + 8}' cy='{y}' r='4' fill='{color}'/>",
        f"<text x='{_LEFT + 20}' y='{y + 4}' {_FONT}>{text}</text>",
    ]
