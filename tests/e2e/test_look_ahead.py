"""`--look-ahead`: the largest batch of an epoch, found and followed before a script's training comes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.records.configuration import Configuration
from tests.documents import checked

from .conftest import MakeBundle
from .inside import run_inside
from .processes import SCRIPTS
from .told import check_told

SCRIPT = SCRIPTS / "padded.py"
LARGEST, NUMBER = 51, 75  # text 200 of 300, in batches of four


def fit(folder: Path, *options: str, look_ahead: int = 1000) -> Any:
    found = run_inside(
        *("fit", SCRIPT, "--for", "a100-40g", "--look-ahead", str(look_ahead), "--json", "--", *options), folder=folder
    )
    assert found.status == 0, found.errors
    return checked("fit-for", found.output)


@pytest.mark.parametrize("options", [(), ("--accumulate", "4"), ("--workers", "2")], ids=["plain", "parts", "workers"])
def test_the_answer_is_for_the_largest_batch_of_the_epoch(options: tuple[str, ...], tmp_path: Path) -> None:
    found = fit(tmp_path, *options)
    ahead, (card,) = found["ahead"], found["fits"]
    assert len(ahead["elements"]) == NUMBER
    assert ahead["is_whole"]
    assert (ahead["largest"]["number"], ahead["largest"]["shapes"]) == (LARGEST, {"ids": [4, 3000]})
    last = card["batches"][-1]
    assert last["batch"] == ahead["largest"]
    assert last["process_bytes"] == card["plain"]["own"]["roomy_bytes"]
    numbers = [one["batch"]["number"] for one in card["batches"]]
    assert numbers == ([2, 5, 7, LARGEST] if "--accumulate" in options else [1, 2, 5, 7, LARGEST])
    assert found["sentences"][1] == (
        f"Of the {NUMBER} batches of an epoch, batch {LARGEST} needs the most: ids 4x3000. The smallest has ids 4x119."
    )


def test_the_peak_is_that_of_a_script_that_comes_to_this_batch_at_once(tmp_path: Path) -> None:
    found = fit(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT.read_text().replace("lengths[200]", "lengths[8]"))
    run = run_inside("explain", "train.py", "--for", "a100-40g", "--json", folder=tmp_path)
    assert run.status == 0, run.errors
    (card,) = found["fits"]
    assert card["batches"][-1]["tensor_bytes"] == checked("explain", run.output)["peak_bytes"]


@pytest.mark.parametrize(
    ("options", "look_ahead", "told"),
    [
        (
            ("--broken-at", "90"),
            1000,
            "Later batches were not read: batch 23 raises ValueError: the file is broken.",
        ),
        (("--endless",), 90, "Later batches were not read: 90 were asked for."),
        (("--of-one-length",), 1000, "All of the 75 batches of an epoch are of one size."),
        (("--loader-per-step",), 1000, "Note: no batch was read ahead: no DataLoader feeds the model"),
        (("--without-loader",), 1000, "Note: no batch was read ahead: no DataLoader feeds the model"),
        ((), 0, "Its batches differ in size: with --look-ahead 1000, the answer is for the largest."),
    ],
    ids=["broken", "endless", "of one length", "loader per step", "without loader", "not asked"],
)
def test_what_was_not_read_is_told(options: tuple[str, ...], look_ahead: int, told: str, tmp_path: Path) -> None:
    found = fit(tmp_path, *options, look_ahead=look_ahead)
    assert any(one.startswith(told) for one in found["sentences"]), found["sentences"]
    largest_size_is_told = "--of-one-length" in options
    assert (found["fits"][0]["plain"]["largest"] is not None) == largest_size_is_told


def test_a_gate_counts_the_batches_that_a_card_has_no_room_for(tmp_path: Path) -> None:
    command = ("gate", SCRIPT, "--for", "1.6GiB")
    first = run_inside(*command, folder=tmp_path)
    assert first.status == 0, first.output
    found = run_inside(*command, "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors
    assert (
        "On 1.6GiB there is no room for the tensors of about 1 of the 75 batches of an epoch." in found.output.decode()
    )


def test_the_setting_of_a_bundle_is_held_against_the_largest_batch_too(tmp_path: Path, make_bundle: MakeBundle) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.read_text())
    bundle = make_bundle(script, Configuration("eager", batch_size=4))
    found = run_inside("gate", bundle, script, "--for", "1.6GiB", "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors
    assert f"Of the 75 batches of an epoch, batch {LARGEST} needs the most: " in found.output.decode()


def test_the_peak_is_explained_with_its_batch(tmp_path: Path) -> None:
    run = run_inside("explain", SCRIPT, "--for", "a100-40g", "--look-ahead", "1000", folder=tmp_path)
    assert run.status == 0, run.errors
    told = run.output.decode()
    assert told.lstrip().startswith("The step with ids 4x3000 holds ")
    assert f"Of the 75 batches of an epoch, batch {LARGEST} needs the most: " in " ".join(told.split())


def test_a_version_with_longer_batches_needs_more_memory(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.read_text().replace("= 3000", "= 4000"))
    compared = ("gate", "train.py", "--against", SCRIPT, "--for", "a100-40g")
    assert run_inside(*compared, folder=tmp_path).status == 0
    found = run_inside(*compared, "--look-ahead", "1000", folder=tmp_path)
    assert found.status == 3, found.errors


@pytest.mark.parametrize("command", [("fit",), ("gate", "--limit", "1GiB")])
def test_a_measurement_reads_nothing_ahead(command: tuple[str, ...], tmp_path: Path) -> None:
    name, *options = command
    run = run_inside(name, SCRIPT, *options, "--look-ahead", "10", folder=tmp_path)
    check_told(run, status=2, cause="--look-ahead goes together with --for", next_step="name a GPU")
