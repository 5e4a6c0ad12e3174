"""``autotune export --as``: files that are measured and proven, and then run where there is no autotune."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import pytest

import autotune
from autotune import pipeline
from autotune.errors import ExportError
from autotune.export import plain_code
from autotune.export.exporters import EXPORTERS
from autotune.records.configuration import Configuration
from autotune.records.plan import Plan
from autotune.records.study import StudyRecord, StudySpec
from autotune.store.database import open_store
from autotune.tuning.budget import Interruption
from autotune.tuning.exporting import ExportedFile
from tests.fakes.stored_study import store_study
from tests.fakes.study_record import study_record

from .conftest import Discover, Plain
from .inside import _Forking, run_inside
from .processes import DEADLINE_S, QUICK, SCRIPTS, Finished, run_command, variables

ROOT = str(Path(autotune.__file__).parents[1])

# The script as its owner would edit it, in a process that cannot import autotune.
EDITED = """
import sys
sys.path[:] = [path for path in sys.path if path != {root!r}]
sys.modules["autotune"] = None
sys.path[:0] = [{scripts!r}, {home!r}]
text = open({script!r}).read()
for before, after in {edits!r}:
    assert text.count(before) == 1, before
    text = text.replace(before, after)
exec(compile(text, {script!r}, "exec"), {{"__name__": "__main__"}})
"""


def study_of(script: str, discovered: Discover, folder: Path) -> StudyRecord:
    spec = StudySpec(
        script=str(SCRIPTS / script), working_directory=str(folder), python=sys.executable, measuring=QUICK,
        start_timeout_s=DEADLINE_S, trial_timeout_s=DEADLINE_S,
    )  # fmt: skip
    facts = dataclasses.replace(discovered(script).facts, script_sha256=spec.script_sha256())
    return dataclasses.replace(
        study_record(spec=spec, facts=facts, trials=(), repeats=()), verdict=None, autotune="0.1"
    )


def export_file(
    record: StudyRecord, kind: str, path: Path, plans: tuple[Plan, ...], *, nearest: bool = False
) -> ExportedFile:
    launcher = _Forking(
        python=sys.executable,
        root=path.parent / "runs",
        working_directory=path.parent,
        start_timeout_s=DEADLINE_S,
        trial_timeout_s=DEADLINE_S,
        variables=variables(),
    )
    taken = pipeline.export_file(
        record,
        EXPORTERS[kind],
        path,
        configuration=Configuration("aot", plans, 0, record.facts.baseline.batch_size),
        nearest=False,
        repetitions=1,
        launcher=launcher,
        interruption=Interruption(),
        runs=path.parent / "runs",
        told=lambda what, outcome: None,
    )
    assert taken is not None
    return taken


def run_edited(script: str, home: Path, *edits: tuple[str, str]) -> Finished:
    code = EDITED.format(root=ROOT, scripts=str(SCRIPTS), home=str(home), script=str(SCRIPTS / script), edits=edits)
    return run_command(sys.executable, "-c", code, folder=home)


@pytest.mark.slow
def test_blocks_with_batch_norm_count_once(tmp_path, discovered, plain: Plain):
    record = study_of("conv_blocks.py", discovered, tmp_path)

    taken = export_file(record, "torch", tmp_path / "recompute.py", (Plan("ConvBlock+", 1, 2),))

    assert taken.shown.proof.equal_to_script, taken.shown.proof
    assert [(one.class_name, one.chosen) for one in taken.said.blocks] == [("ConvBlock", (0, 1))]
    edited = run_edited(
        "conv_blocks.py", tmp_path, ("optimizer = ", "from recompute import apply; apply(model)\noptimizer = ")
    )
    assert edited.output == plain("conv_blocks.py").output, edited.errors
    assert b"BUFFER" in edited.output


@pytest.mark.slow
def test_a_file_that_does_not_compute_what_the_script_does_is_not_written(tmp_path, discovered, monkeypatch):
    monkeypatch.setattr(plain_code, "_CHECKPOINTED_NORMS", plain_code._CHECKPOINTED)
    record = study_of("conv_blocks.py", discovered, tmp_path)

    with pytest.raises(ExportError, match=r"does not compute what the script computes.*buffers"):
        export_file(record, "torch", tmp_path / "recompute.py", (Plan("ConvBlock+", 1, -1),))

    assert not (tmp_path / "recompute.py").exists()


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["GPT2Block+", "GPT2Block+/2"])
def test_trainer_takes_the_arguments_it_is_given(plan, tmp_path, discovered, plain: Plain):
    record = study_of("hf_trainer.py", discovered, tmp_path)

    taken = export_file(record, "transformers", tmp_path / "training_arguments.py", (Plan(plan, 1, -1),))

    assert taken.shown.proof.equal_to_script, taken.shown.proof
    assert ('"every_n_layers": 2' in taken.text) == (plan != "GPT2Block+")
    edited = run_edited(
        "hf_trainer.py",
        tmp_path,
        ("import tempfile\n", "import tempfile\nfrom training_arguments import ARGUMENTS\n"),
        ("            per_device_train_batch_size=4,\n", "            **ARGUMENTS,\n"),
        ("            gradient_accumulation_steps=2,\n", ""),
    )
    assert edited.losses == plain("hf_trainer.py").losses, edited.errors
    assert re.search(r'"(activation|gradient)_checkpointing": True', taken.text)


@pytest.mark.slow
def test_the_command_refuses_with_the_reason_and_takes_the_nearest_which_trains_alike(
    tmp_path, discovered, plain: Plain
):
    record = study_of("conv_blocks.py", discovered, tmp_path)
    own = record.facts.baseline.batch_size
    unsaid = Plan("convolution+", 1, -1)
    plans = (unsaid, Plan("ConvBlock+", 1, 2))
    trial = dataclasses.replace(study_record().trials[0], configuration=Configuration("aot", plans, 0, own))
    with open_store(str(tmp_path / "studies.db")) as store:
        store_study(store, dataclasses.replace(record, trials=(trial,)))
    where = ("--storage", tmp_path / "studies.db")
    command = ("export", record.name, "--as", "torch", "--trial", "0", "--repetitions", "1", *where)

    refused = run_inside(*command, folder=tmp_path)

    assert refused.status == 1
    assert f"{unsaid}: plain code checkpoints whole blocks" in refused.errors
    assert "--as torch --trial 0 --nearest" in refused.errors.splitlines()[-1]
    assert not (tmp_path / "recompute.py").exists()

    taken = run_inside(*command, "--nearest", "--json", folder=tmp_path)

    assert taken.status == 0, taken.errors
    found = json.loads(taken.output)
    assert found["shown"]["proof"]["equal_to_script"] is True
    text = (tmp_path / "recompute.py").read_text()
    assert '"ConvBlock": (' in text
    assert "import autotune" not in text
    edited = run_edited(
        "conv_blocks.py", tmp_path, ("optimizer = ", "from recompute import apply; apply(model)\noptimizer = ")
    )
    assert edited.output == plain("conv_blocks.py").output, edited.errors
