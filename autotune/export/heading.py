"""Head of a file that states a setting without autotune: a description, its figures and its proof."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..records.configuration import keeps_batch_size
from ..records.environment import Environment
from ..records.facts import Facts
from ..records.figures import Figures, format_figures
from ..records.global_batch import accumulation_seen, accumulation_to_keep
from ..records.proof import Proof
from ..records.study import StudyRecord
from ..records.units import format_bytes
from ..records.words import setting_words
from .expressing import Expressed

MARK = "Exported by autotune "
"""What an older file is known by."""

# As wide as the code below it.
_WIDTH = 112


@dataclass(frozen=True)
class Shown:
    """Measurements of a file in turns with the script and, unless None, with autotune's own run; and its proof."""

    script: Figures | None
    setting: Figures | None
    file: Figures
    proof: Proof
    limit_bytes: int
    environment: Environment


@dataclass(frozen=True)
class Heading:
    """The texts of a file's head, and its sizes with notes; ``batch_size`` is None where nobody knows the script's."""

    title: str
    paragraphs: tuple[str, ...]
    batch_size: int | None
    batch_size_note: str
    accumulation: float
    accumulation_note: str

    def docstring(self, usage: str, *more: str) -> str:
        """Give the docstring that a file begins with: its title with its usage, then a paragraph each."""
        return "\n\n".join([f'"""{self.title}: {usage}.', *self.paragraphs, *more]) + '\n"""'


def heading_of(record: StudyRecord, said: Expressed, shown: Shown | None) -> Heading:
    """The head of a file; without figures, that of the draft which is measured."""
    facts = record.facts
    assert facts is not None
    configuration = said.configuration
    own = facts.baseline.batch_size
    seen = accumulation_seen(record) or 1.0
    batch_size = configuration.batch_size or own
    accumulation = configuration.accumulation or accumulation_seen(record, configuration) or seen
    kept = accumulation_to_keep(seen, own, batch_size)
    note = "micro-batches per optimizer step"
    if configuration.accumulation:
        note += f"; the script's own is {seen:g}"
    elif accumulation != seen:
        note += f", by the script itself; {seen:g} at its own batch size"
    elif not keeps_batch_size(batch_size, own):
        note += ", as in the script"
        note += f"; {kept:g} keep its global batch" if kept else "; no whole number keeps its global batch"
    title = f"The setting of {Path(record.spec.title).name}"
    return Heading(
        title=_safe(textwrap.shorten(title, _WIDTH - 50, placeholder=" …")),
        paragraphs=tuple(_paragraphs(record, facts, said, shown)),
        batch_size=batch_size,
        batch_size_note="per process" + ("" if keeps_batch_size(batch_size, own) else f"; the script's own is {own}"),
        accumulation=accumulation,
        accumulation_note=note,
    )


def _paragraphs(record: StudyRecord, facts: Facts, said: Expressed, shown: Shown | None) -> Iterator[str]:
    words = setting_words(said.configuration, facts.clusters)
    plans = f" ({said.configuration.recomputed})" if said.configuration.recomputed else ""
    by = f"{MARK}{record.autotune} from study {record.name!r}"
    yield _wrapped(f"{by}. The setting is {words}{plans}.")
    if said.refusals:
        yield _wrapped(
            f"It is the nearest setting that can be written so. The one found could not be: {'; '.join(said.reasons)}."
        )
    if shown is None:
        return
    named = {"the script": shown.script, "autotune launch": shown.setting, "this file": shown.file}
    figures = [f"    {name:<16} {format_figures(one)}" for name, one in named.items() if one is not None]
    environment = shown.environment
    on = f"{environment.device_name}, Python {environment.python}, {environment.library}"
    yield "\n".join([_wrapped(f"Measured in turns on {on}:"), *figures])
    yield _wrapped(f"The memory limit was {format_bytes(shown.limit_bytes)}. {shown.proof.statement}")


def _wrapped(text: str) -> str:
    # It stands between three quotes, where a backslash would begin an escape.
    return textwrap.fill(_safe(text), _WIDTH, break_long_words=False, break_on_hyphens=False)


def _safe(text: str) -> str:
    return text.replace("\\", "/").replace('"""', "'''")
