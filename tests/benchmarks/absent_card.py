"""Peaks predicted for a card that is not there, against peaks that others have measured on it.

The measurements are of itu-rad/GPUMemNet (arXiv 2602.17817): timm's ``train.py`` on an A100-40GB, with nvidia-smi, at
batch 8 to 128. Neither they nor timm's script are part of this project: fetch both, and name them.
``python tests/benchmarks/absent_card.py fake_tensor.xlsx pytorch-image-models/train.py --half unseen --models 100``

timm is 1.0.9, with its own ``train.py``. This is the first version that has all of the sheet's 1,017 models. Version
1.0.11 has 35 more, none of them in the sheet, and larger images for one model.

Models are drawn by a seed, of all but those that were looked at while the rules were written: ``--half seen``.
Traces are kept in a folder, and the same command goes on where it stopped.

Rows are chosen by the sheet alone. FakeTensor's estimate is nearly always too low, so that a row whose peak is below
it died, as did one above 39,000 MiB. Rows count up to the first that died. Models are shown apart if their peaks grow
from a row to the next by less than 75 % of what FakeTensor tells: nvidia-smi, asked once a second, saw cuDNN's trials
of algorithms by chance.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import itertools
import random
import re
import statistics
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from autotune.cli.local_launcher import make_launcher  # noqa: E402
from autotune.cli.spec import spec_of  # noqa: E402
from autotune.errors import FormatError  # noqa: E402
from autotune.launch.requests import trace_request  # noqa: E402
from autotune.predict.device_peak import DevicePeak, outside_bytes, peak_of, process_bytes  # noqa: E402
from autotune.records import codec  # noqa: E402
from autotune.records.allocations import AllocationTrace, between  # noqa: E402
from autotune.records.cards import CARD_ERROR, CARDS  # noqa: E402
from autotune.tuning.context import run_first  # noqa: E402
from tests.benchmarks.absent_picture import draw  # noqa: E402

SCRIPT = ROOT / "tests/benchmarks/scripts/beside_torchvision.py"
CARD = CARDS["a100-40gb"]
SEEN = Path(__file__).with_name("absent_card_seen.txt")
# The constant for memory outside of torch's allocator was chosen on these, so neither half has them.
CHOSEN_ON = frozenset(
    [
        "convnext_femto",
        "ecaresnet50d",
        "hgnet_tiny",
        "mixer_b16_224",
        "mobilenet_edgetpu_v2_s",
        "mobilenetv2_110d",
        "regnetx_040",
        "resnet200",
        "samvit_base_patch16",
        "seresnext26d_32x4d",
        "skresnet34",
        "tiny_vit_21m_512",
        "vit_small_r26_s32_224",
        "xception41",
    ]
)
SEED = 42
TRACED = (16, 32)
DIED_MIB, NEAR_MIB, LEAST_GROWTH = 39_000, 30_000, 0.75
MIB = 1 << 20


@dataclass(frozen=True)
class Row:
    """A model at a batch size: MiB measured, and told by FakeTensor, as the sheet has them; both of the device."""

    model: str
    batch_size: int
    measured: int
    fake_tensor: float


@dataclass(frozen=True)
class Told:
    """A row with what is predicted for it, in MiB."""

    row: Row
    family: str
    predicted: float
    fits: bool

    @property
    def error(self) -> float:
        """Return how far the prediction is off, as a share of what was measured; below 0 if too low."""
        return self.predicted / self.row.measured - 1


def read_sheet(path: Path) -> dict[str, list[Row]]:
    """Read the rows of each model, the smaller batch first."""
    import openpyxl

    sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
    found: defaultdict[str, list[Row]] = defaultdict(list)
    for name, batch_size, measured, _, _, estimate, *_ in sheet.iter_rows(min_row=2, values_only=True):
        model = re.sub(r"_\d+\.out$", "", name)
        if isinstance(estimate, (int, float)):
            found[model].append(Row(model, int(batch_size), int(measured), float(estimate)))
    return {model: sorted(rows, key=lambda row: row.batch_size) for model, rows in found.items()}


def until_one_died(rows: Sequence[Row]) -> list[Row]:
    """Return a model's rows up to the first that died."""
    return list(itertools.takewhile(lambda row: row.fake_tensor < row.measured <= DIED_MIB, rows))


def is_even(rows: Sequence[Row]) -> bool:
    """Return whether peaks grow with the batch at least 75 % of what FakeTensor tells from row to row."""
    return all(
        after.measured - before.measured >= LEAST_GROWTH * (after.fake_tensor - before.fake_tensor)
        for before, after in itertools.pairwise(rows)
    )


def drawn(models: Collection[str], half: str, number: int) -> list[str]:
    """Name the models that were looked at, or draw others by the seed."""
    seen = SEEN.read_text().split()
    order = sorted(set(models) - set(seen))
    random.Random(SEED).shuffle(order)
    return [model for model in (seen if half == "seen" else order) if model not in CHOSEN_ON][:number]


def make_images(folder: Path) -> Path:
    """Write pictures for the script to load, if they are not there."""
    from PIL import Image

    for place in range(0 if (folder / "train").exists() else 400):
        for split in ("train", "validation"):
            picture = folder / split / str(place % 4) / f"{place}.png"
            picture.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (64, 64), (place % 256, 0, 0)).save(picture)
    return folder


def version(python: Path) -> str:
    """Return a name for what traces depend on: how autotune makes them, and the versions of torch and timm."""
    package = ROOT / "autotune"
    sources = [*sorted((package / "worker/absent").glob("*.py")), package / "predict/kernels.py"]
    asked = "from importlib.metadata import version; print(version('torch'), version('timm'))"
    versions = subprocess.run([python, "-c", asked], capture_output=True, check=True).stdout
    return hashlib.sha256(b"".join([*(source.read_bytes() for source in sources), versions])).hexdigest()[:12]


def trace(model: str, batch_size: int, train: Path, python: Path, folder: Path, traces: Path) -> AllocationTrace | str:
    """Trace the script with a model, or read an earlier trace; a text is why it cannot be."""
    kept = traces / f"{model}-{batch_size}.json"
    if kept.exists():
        return codec.loads(AllocationTrace, kept.read_text())
    arguments = (train, "--data-dir", folder / "images", "--model", model, "-b", batch_size, "--workers", 0)
    found = follow_script(arguments, folder / "runs" / model, python)
    if isinstance(found, str):
        return found
    kept.parent.mkdir(parents=True, exist_ok=True)
    half_written = kept.with_suffix(".new")
    half_written.write_text(codec.dumps(found))
    half_written.replace(kept)
    return found


def follow_script(
    arguments: Sequence[object], folder: Path, python: Path = Path(sys.executable)
) -> AllocationTrace | str:
    """Follow a script with its arguments on the card; a text is why that is not possible."""
    spec = spec_of({"script": SCRIPT, "arguments": tuple(map(str, arguments)), "engine": "aot", "python": str(python)})
    launcher = make_launcher(spec, folder.parent)
    result = run_first(launcher, spec, trace_request(spec, CARD), folder, threading.Event())
    if result.traced is not None:
        return result.traced.trace
    failed = result.outcomes[0] or result.failure
    return str(getattr(failed, "cause", "") or failed)


def family_of(trace: AllocationTrace) -> str:
    """Name a model's family by the operators that it runs."""
    names = {call.name for call in trace.operators}
    if any("attention" in name for name in names):
        return "attention"
    convolutions = [call for call in trace.operators if call.name == "convolution"]
    if not convolutions:
        return "no convolution"
    return "grouped convolutions" if any(call.options["groups"][0] > 1 for call in convolutions) else "convolutions"


Peak = Callable[[AllocationTrace], float]
Traces = tuple[AllocationTrace, AllocationTrace]


def predict(rows: Sequence[Row], traces: Traces, peak: Peak) -> list[Told]:
    """Predict the rows of a model from its traces at two batch sizes."""
    low, high = TRACED
    family = family_of(traces[0])

    def told(row: Row) -> Told:
        trace = between(*traces, (row.batch_size - low) / (high - low))
        return Told(row, family, peak(trace), process_bytes(trace, CARD, CARD.holds_up_to(CARD_ERROR)) is not None)

    return [told(row) for row in rows]


def whole(trace: AllocationTrace) -> float:
    """Predict the peak in MiB as the product does."""
    found = process_bytes(trace, CARD, CARD.memory_bytes) or process_bytes(trace, CARD)
    assert found is not None
    return found / MIB


def _peak(trace: AllocationTrace) -> DevicePeak:
    return peak_of(trace, CARD)


def _without_kernels(trace: AllocationTrace) -> AllocationTrace:
    return replace(trace, operators=tuple(replace(call, name="") for call in trace.operators))


ABLATIONS: Mapping[str, Peak] = {
    "as predicted": whole,
    "without the allocator": lambda trace: (_peak(trace).allocated + outside_bytes(trace)) / MIB,
    "without what kernels take": lambda trace: (_peak(_without_kernels(trace)).reserved + outside_bytes(trace)) / MIB,
    "without the constant": lambda trace: _peak(trace).reserved / MIB,
}


def figures(errors: Sequence[float]) -> str:
    """Say how far predictions are off, as shares of what was measured."""
    if not errors:
        return "no rows"
    sizes = sorted(map(abs, errors))

    def within(share: float) -> str:
        return f"{100 * sizes[min(len(sizes) - 1, int(share * len(sizes)))]:.1f}%"

    low = sum(error < 0 for error in errors)
    held = sum(size <= CARD_ERROR for size in sizes)
    return (
        f"{len(sizes):4} rows: median {100 * statistics.median(sizes):.1f}%, 90% within {within(0.9)}, 99% within "
        f"{within(0.99)}; {100 * low / len(sizes):.0f}% too low; {100 * held / len(sizes):.0f}% within {CARD_ERROR:.0%}"
    )


def growth_errors(told: Sequence[Told]) -> list[float]:
    """Return how far the growth per added sample is off, from each row of a model to the next."""
    return [
        (after.predicted - before.predicted) / (after.row.measured - before.row.measured) - 1
        for before, after in itertools.pairwise(told)
        if after.row.model == before.row.model
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("train", type=Path, help="timm's train.py")
    parser.add_argument("--half", choices=("seen", "unseen"), default="unseen")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="of an environment with timm")
    parser.add_argument("--folder", type=Path, default=ROOT / "build/absent-card")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the rows that count, as SVG")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    whole_sheet = read_sheet(options.sheet)
    sheet = {model: until_one_died(rows) for model, rows in whole_sheet.items()}
    models = drawn(sheet, options.half, options.models)
    make_images(options.folder / "images")
    follow = functools.partial(
        trace,
        train=options.train.resolve(),
        python=options.python,
        folder=options.folder,
        traces=options.folder / f"traces-{version(options.python)}",
    )

    def both(model: str) -> Traces | str:
        low = follow(model, TRACED[0])
        high = follow(model, TRACED[1]) if isinstance(low, AllocationTrace) else low
        if isinstance(low, str) or isinstance(high, str):
            return str(high)
        try:
            between(low, high, 1.0)
        except FormatError as error:
            return str(error)
        return low, high

    traces: dict[str, Traces] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        for model, found in zip(models, pool.map(both, models), strict=True):
            if isinstance(found, str):
                print(f"{model}: cannot be followed: {found}")
            else:
                traces[model] = found
            print(f"{len(traces)} of {len(models)} models", file=sys.stderr)
    has_rows = {model: pair for model, pair in traces.items() if sheet[model]}
    even = {model: pair for model, pair in has_rows.items() if is_even(sheet[model])}
    apart = {model: pair for model, pair in has_rows.items() if model not in even}
    print(
        f"{len(models)} models: {len(even)} with even rows, {len(apart)} apart, {len(traces) - len(has_rows)} without"
    )
    for title, peak in ABLATIONS.items():
        told = told_of(even, sheet, peak)
        print(f"{title:28}{figures([one.error for one in told])}")
        if peak is whole:
            report(told)
            uneven = told_of(apart, sheet, whole)
            print(f"{'models shown apart':28}{figures([one.error for one in uneven])}")
            print(f"{'these and the others':28}{figures([one.error for one in (*told, *uneven)])}")
    if options.picture:
        draw_rows(told_of(has_rows, sheet, whole), options.picture)
    near_limit(told_of(traces, whole_sheet, whole))
    estimates = [row.fake_tensor / row.measured - 1 for model in even for row in sheet[model]]
    print(f"{'FakeTensor, by GPUMemNet':28}{figures(estimates)}")


def draw_rows(told: Sequence[Told], path: Path) -> None:
    """Draw what was predicted and what FakeTensor tells, in GiB, over what was measured."""
    measured, predicted, estimates = (
        [mib / 1024 for mib in column]
        for column in zip(*((one.row.measured, one.predicted, one.row.fake_tensor) for one in told), strict=True)
    )
    draw(measured, predicted, estimates, "PyTorch's FakeTensor, as GPUMemNet has it", path)


def near_limit(told: Sequence[Told]) -> None:
    """Print for rows near the card's memory whether they were told to fit; after those that ran the first of a model.

    A run on a full card may have died, or gone on with what the allocator freed: its peak is about the same.
    """
    memory = CARD.memory_bytes / MIB
    by_model = [list(rows) for _, rows in itertools.groupby(told, key=lambda one: one.row.model)]
    survived = [until_one_died([one.row for one in rows]) for rows in by_model]
    ran = [one for rows, those in zip(by_model, survived, strict=True) for one in rows[: len(those)]]
    ended = [rows[len(those)] for rows, those in zip(by_model, survived, strict=True) if len(those) < len(rows)]
    died = [one for one in ended if one.row.measured <= DIED_MIB]
    for title, rows in (
        (f"ran, above {NEAR_MIB:,} MiB", [one for one in ran if one.row.measured > NEAR_MIB]),
        ("died", died),
        (f"above {DIED_MIB:,} MiB", [one for one in ended if one.row.measured > DIED_MIB]),
    ):
        inside = sum(one.fits for one in rows)
        outside = sum(one.predicted > memory for one in rows)
        print(
            f"{title:28}{len(rows):4} rows: {inside} told to fit, {outside} told to need more than there is, "
            f"{len(rows) - inside - outside} within {CARD_ERROR:.0%} of it"
        )
    for one in died:
        if one.fits:
            print(f"  died, told to fit: {one.row.model} at {one.row.batch_size}: {one.predicted:,.0f} MiB")


def told_of(traces: Mapping[str, Traces], sheet: Mapping[str, Sequence[Row]], peak: Peak) -> list[Told]:
    """Predict all rows of the models that were traced."""
    return [one for model, pair in traces.items() for one in predict(sheet[model], pair, peak)]


def report(told: Sequence[Told]) -> None:
    """Print the families, the growth per sample, and the ten rows that are furthest off."""
    for family in sorted({one.family for one in told}):
        print(f"  {family:26}{figures([one.error for one in told if one.family == family])}")
    print(f"  {'growth per sample':26}{figures(growth_errors(told))}")
    for one in sorted(told, key=lambda one: -abs(one.error))[:10]:
        print(
            f"  {one.row.model} at {one.row.batch_size}: {one.predicted:,.0f} for {one.row.measured:,} MiB "
            f"({100 * one.error:+.1f}%)"
        )


if __name__ == "__main__":
    main()
