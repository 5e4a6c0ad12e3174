"""Write the page of what was measured, with tables and figures, from the records: ``python trials/page.py``.

It is ``trials/records/README.md``, with a picture beside each record. Whoever loses is in it as well.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from autotune.records.codec import loads  # noqa: E402
from autotune.records.outcome import Measured  # noqa: E402
from autotune.records.study import StudyRecord  # noqa: E402
from autotune.records.units import format_bytes, format_duration, format_rate, format_share  # noqa: E402
from tests.benchmarks.noise import Noise, sentence_of  # noqa: E402
from tests.benchmarks.peers.record import Record, read_record  # noqa: E402
from tests.benchmarks.peers.table import Row, as_markdown, rows_of, title_of  # noqa: E402

_WIDTH, _LABELS, _RIGHT, _ROW, _TOP = 760.0, 210.0, 110.0, 24.0, 34.0
# Repetitions of one setting never lie so far apart; a bar without an end would hide the others.
_LONGEST_RATIO = 4.0
FACTS, TESTS = "facts.json", "tests.json"
_NO_PEERS = (FACTS, TESTS, "noise-")


def main() -> None:
    """Write the page and the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=Path, default=HERE / "records", metavar="DIR")
    records = parser.parse_args().records
    page = records / "README.md"
    page.write_text(page_of(records), encoding="utf-8")
    print(page)


def page_of(records: Path) -> str:
    """The page; pictures are written beside the records that they are of."""
    said = [
        "# What was measured",
        "",
        "Written by `python trials/page.py` from the records in these folders, one for each device. A record has every",
        "raw sample, the environment and everything that was tried, in order. `make gpu` makes them on a GPU, and",
        "`python -m tests.benchmarks.peers charlm-miniature` on a CPU. Ratios are means of repetitions, in which all",
        "were measured in turns.",
    ]
    on_gpu = False
    for folder in sorted(path for path in records.iterdir() if path.is_dir()):
        paths = [path for path in sorted(folder.glob("*.json")) if not path.name.startswith(_NO_PEERS)]
        found = {path: record for path in paths if (record := read_record(path)) is not None}
        environments = [record.environment for record in found.values() if record.environment is not None]
        on_gpu |= (folder / FACTS).exists() or any(one.device_kind == "cuda" for one in environments)
        name = environments[0].device_name if environments else folder.name
        parts = [part for path, record in found.items() for part in part_of(record, path)]
        said += ["", f"## {name}", "", *facts_of(folder), *tests_of(folder), *noise_of(folder), *parts]
    if not on_gpu:
        said += ["", "No GPU has been at hand for these yet."]
    return "\n".join(said).rstrip() + "\n"


def facts_of(folder: Path) -> list[str]:
    """Tell what was seen of a device that is not as believed, and how much was."""
    path = folder / FACTS
    if not path.exists():
        return []
    facts = json.loads(path.read_text(encoding="utf-8"))
    wrong = [fact for fact in facts if fact["holds"] is False]
    as_believed = sum(fact["holds"] is True for fact in facts)
    said = [f"{as_believed} of {as_believed + len(wrong)} facts were as believed ([all]({folder.name}/{FACTS})).", ""]
    if wrong:
        said += ["| not as believed | believed | seen |", "| --- | --- | --- |"]
        said += [
            f"| {fact['name']} | {fact['believed']} | `{json.dumps(fact['seen']).replace('|', ' ')}` |"
            for fact in wrong
        ]
        said.append("")
    return said


def tests_of(folder: Path) -> list[str]:
    """Tell what the tests on a device came to, each at its last run."""
    path = folder / TESTS
    if not path.exists():
        return []
    last = {test["test"]: test["outcome"] for test in json.loads(path.read_text(encoding="utf-8"))}
    counts = Counter(last.values())
    said = [
        f"Tests on the device: {', '.join(f'{number} {outcome}' for outcome, number in sorted(counts.items()))}.",
        "",
    ]
    failed = [test.rpartition("::")[2] for test, outcome in last.items() if outcome == "failed"]
    return [*said, *(f"- `{test}` failed." for test in failed), *([""] if failed else [])]


def noise_of(folder: Path) -> list[str]:
    """How far runs of one thing scatter on a device, a line for each workload and batch size."""
    said = []
    for path in sorted(folder.glob("noise-*.json")):
        noise = loads(Noise, path.read_text(encoding="utf-8"), where=path.name)
        sizes = dict.fromkeys(run.setting.batch_size for run in noise.runs)
        said += [f"- {sentence_of(noise, size)}." for size in sizes]
    return [*said, ""] if said else []


def part_of(record: Record, path: Path) -> list[str]:
    """Write what the page says of a record: peers, where any was measured, and the study's own trials."""
    rows = [row for row in rows_of(record) if row.ratio is not None]
    said = [as_markdown(record) if record.runs else f"### {title_of(record)}", ""]
    if rows:
        picture = path.with_suffix(".svg")
        picture.write_text(picture_of(record, rows), encoding="utf-8")
        what = "Samples per second of each peer, against the best batch without recompute"
        said += [f"![{what}]({picture.parent.name}/{picture.name})", ""]
    if record.study is not None:
        said += [*study_of(record.study, record.foreseen_bytes), ""]
    return said


def study_of(study: StudyRecord, foreseen_bytes: dict[str, int]) -> list[str]:
    """The trials of a study in their order, with what was foreseen of their peaks."""
    spent = None if study.verdict is None else study.verdict.spent
    took = "" if spent is None else f", in {format_duration(spent.total_s)} from discovery to proof"
    said = [f"Our trials in their order{took}:", ""]
    said += ["| trial | setting | samples/s | peak | foreseen | off |", "|---:|---|---:|---:|---:|---:|"]
    errors = []
    for trial in study.shown:
        cells = [str(trial.number), str(trial.configuration).replace("|", "\\|"), "", "", "", ""]
        outcome = trial.outcome
        if isinstance(outcome, Measured):
            peak = outcome.measurement.peaks.fit_bytes
            cells[2] = format_rate(outcome.measurement.samples_per_s)
            cells[3] = "" if peak is None else format_bytes(peak)
            told = foreseen_bytes.get(str(trial.number))
            if told is not None and peak:
                errors.append(abs(told / peak - 1))
                cells[4:] = [format_bytes(told), format_share(errors[-1])]
        elif outcome is not None:
            cells[2] = outcome.kind.replace("_", " ")
        said.append(f"| {' | '.join(cells)} |")
    if errors:
        said += ["", f"Peaks foreseen without a trial: the worst of {len(errors)} is {format_share(max(errors))} off."]
    if study.verdict is not None:
        said += ["", study.verdict.sentences]
    return said


def picture_of(record: Record, rows: list[Row]) -> str:
    """A bar for each peer: the mean of its repetitions' ratios, and how far they lie apart."""
    most = min(_LONGEST_RATIO, max(row.ratio_between[1] for row in rows if row.ratio_between))
    scale = (_WIDTH - _LABELS - _RIGHT) / most
    bars = [
        {
            "name": f"{row.peer}, batch {row.batch_size}",
            "y": _TOP + number * _ROW,
            "width": min(row.ratio, most) * scale,
            "low": _LABELS + min(row.ratio_between[0], most) * scale,
            "high": _LABELS + min(row.ratio_between[1], most) * scale,
            "text": f"{row.ratio:.2f}x",
            "kind": "flawed" if row.why_not else "ours" if row.peer == "autotune" else "peer",
        }
        for number, row in enumerate(rows)
    ]
    pictures = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    return pictures.get_template("page.svg").render(
        title=title_of(record), bars=bars, width=_WIDTH, height=_TOP + len(rows) * _ROW + 10, labels=_LABELS,
        one=_LABELS + scale,
    )  # fmt: skip


if __name__ == "__main__":
    main()
