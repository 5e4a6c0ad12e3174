"""What of a setting can be said without autotune, and what stands in the files that say it."""

from __future__ import annotations

import ast
import dataclasses
import os
from pathlib import Path

import pytest

from autotune.errors import ExportError, UsageError
from autotune.export.atomic_file import check_free, write_whole
from autotune.export.exporters import EXPORTERS, express
from autotune.export.expressing import Expressed, Refusal
from autotune.export.heading import heading_of
from autotune.launch.port import RunResult
from autotune.records.configuration import Configuration
from autotune.records.facts import ClusterFacts, Facts, Located, LocatedBlocks
from autotune.records.outcome import ScriptError
from autotune.records.plan import Plan
from autotune.tuning import exporting
from autotune.tuning.budget import Interruption
from autotune.tuning.exporting import FileExport
from tests.fakes.launcher import FakeLauncher
from tests.fakes.predictable import PREDICTABLE
from tests.fakes.study_record import FACTS as STUDY_FACTS
from tests.fakes.study_record import measured, study_record

BLOCKS = 4
ROWS = (
    ClusterFacts("Block+", 1, BLOCKS, 1000, "1000", 0.01, is_layer=True),
    ClusterFacts("gelu+", 1, 2 * BLOCKS + 1, 100, "100", 0.001),
    ClusterFacts("native_dropout+", 1, 4, 100, "100", 0.001),
    ClusterFacts("mul+add+", 2, 4, 100, "100", 0.001),
)
FACTS: Facts = dataclasses.replace(STUDY_FACTS, clusters=ROWS)
TORCH, TRAINER = EXPORTERS["torch"], EXPORTERS["transformers"]
# The last block that is defined is called first.
LOCATED = Located(("GPT",), (LocatedBlocks("Block", BLOCKS, (3, 0, 1, 2)),), process=1)
SWITCHED = dataclasses.replace(
    LOCATED,
    blocks=(dataclasses.replace(LOCATED.blocks[0], checkpoints=True),),
    trainer_arguments=("per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing"),
    transformers="5.0",
)


def setting(*plans: str, engine="aot", **changes) -> Configuration:
    parsed = (one.split(":") for one in plans)
    return Configuration(engine, tuple(Plan(a, int(b), int(c)) for a, b, c in parsed), 0, 32, **changes)


def said(*plans: str, **changes):
    return express(TORCH, setting(*plans, **changes), FACTS, LOCATED)


# -- rules


def test_a_file_is_measured_with_another_heap_which_its_reader_starts_it_with():
    chosen = said("Block+:1:-1", choices=("bf16=1", "tcmalloc=1", "expandable-segments=1"))
    assert chosen.configuration.choices == ("bf16=1", "tcmalloc=1")


def test_blocks_are_those_that_are_called_first_and_numbered_as_they_are_defined():
    assert said("Block+:1:2").blocks[0].chosen == (0, 3)
    assert said("Block+:1:-1").blocks[0].chosen == (0, 1, 2, 3)
    assert said("Block+/2:1:-1").blocks[0].chosen == (0, 2)
    assert said("Block+/3:1:-1", "Block+:1:1").blocks[0].chosen == (1, 3)


@pytest.mark.parametrize("plan", ["native_dropout+:1:-1", "gelu+/2:1:-1", "mul+add+:2:-1", "cos+:1:-1"])
def test_plans_for_operators_are_refused_and_what_can_be_said_stays(plan):
    found = said("Block+:1:2", plan)
    assert found.reasons == (f"{plan}: plain code checkpoints whole blocks, and no single operators",)
    # Nothing is simulated of these facts, so that all blocks take the place of the operators.
    assert found.configuration.plans == (Plan("Block+", 1, -1),)


@pytest.mark.parametrize(
    "blocks",
    [(), (LocatedBlocks("Block", 3, (0, 1, 2)),), (LOCATED.blocks[0], LOCATED.blocks[0])],
    ids=["none", "fewer", "in two models"],
)
def test_blocks_that_eager_mode_does_not_call_as_they_are_counted_are_refused(blocks):
    found = express(TORCH, setting("Block+:1:2"), FACTS, dataclasses.replace(LOCATED, blocks=blocks))
    assert len(found.refusals) == 1
    assert found.blocks == ()


def test_reasons_that_plans_have_in_common_are_told_once():
    found = express(TRAINER, setting("gelu+:1:-1", "native_dropout+:1:-1"), FACTS, SWITCHED)
    reason = "Trainer's checkpointing recomputes whole layers and nothing else"
    assert found.reasons == (f"gelu+:1:-1 and native_dropout+:1:-1: {reason}",)


def test_what_is_compiled_is_refused_and_the_nearest_has_the_same_blocks_in_eager():
    found = said("Block+:1:2", engine="inductor")
    assert "Inductor" in found.reasons[0]
    assert [one.chosen for one in found.blocks] == [(0, 3)]
    assert found.as_run == Configuration("eager", (), 0, 32)


def test_the_nearest_needs_no_more_by_the_simulation_and_recomputes_the_least():
    layer = dataclasses.replace(ROWS[0], frequency=1)
    facts = dataclasses.replace(PREDICTABLE, clusters=(*PREDICTABLE.clusters, layer))
    located = dataclasses.replace(LOCATED, blocks=(LocatedBlocks("Block", 1, (0,)),))
    wanted = dataclasses.replace(setting("dropout+[mask]:1:-1"), batch_size=facts.baseline.batch_size)
    # At the peak of this graph nothing is saved by it.
    found = express(TORCH, wanted, facts, located)
    assert (len(found.refusals), found.configuration.plans) == (1, ())
    # Where nothing is simulated, all blocks are.
    found = express(TORCH, wanted, dataclasses.replace(facts, graphs=()), located)
    assert found.configuration.plans == (Plan("Block+", 1, -1),)


# -- transformers


def test_trainer_recomputes_all_layers_or_none():
    assert express(TRAINER, setting("Block+:1:-1"), FACTS, SWITCHED).blocks
    assert not express(TRAINER, setting(), FACTS, SWITCHED).blocks
    refused = express(TRAINER, setting("Block+:1:2"), FACTS, SWITCHED)
    assert "all 4 Block or none" in refused.reasons[0]


SKIPPING = dataclasses.replace(SWITCHED, blocks=(dataclasses.replace(SWITCHED.blocks[0], skips=True),))


def test_a_newer_trainer_recomputes_every_nth_layer_too():
    newer = dataclasses.replace(
        SKIPPING, trainer_arguments=(*SKIPPING.trainer_arguments, "gradient_checkpointing_kwargs")
    )
    for plan, every, chosen in (("Block+/2:1:-1", 2, (0, 2)), ("Block+:1:2", 2, (0, 2)), ("Block+:1:1", 4, (0,))):
        found = express(TRAINER, setting(plan), FACTS, newer)
        assert not found.refusals
        assert [one.chosen for one in found.blocks] == [chosen]
        keywords = arguments(found, located=newer)["gradient_checkpointing_kwargs"]
        assert keywords == {"use_reentrant": False, "every_n_layers": every}
    assert "every_n_layers" not in str(arguments(express(TRAINER, setting("Block+:1:-1"), FACTS, newer), located=newer))


def test_layers_of_which_some_are_never_called_are_not_counted_as_left_out():
    arguments_ = (*SWITCHED.trainer_arguments, "gradient_checkpointing_kwargs")
    for number in (6, 8):
        half = dataclasses.replace(SKIPPING.blocks[0], number=number)
        located = dataclasses.replace(SKIPPING, blocks=(half,), trainer_arguments=arguments_)
        found = express(TRAINER, setting("Block+:1:-1"), FACTS, located)
        assert "every_n_layers" not in str(arguments(found, located=located))


def test_layers_that_are_not_every_nth_are_refused():
    assert express(TRAINER, setting("Block+/2:1:-1", "Block+:1:1"), FACTS, SKIPPING).refusals
    refused = express(TRAINER, setting("Block+:1:3"), FACTS, SKIPPING)
    assert refused.reasons == ("Block+:1:3: Trainer's checkpointing recomputes every n-th of the 4 Block or none",)


@pytest.mark.parametrize(("number", "count", "every"), [(5, 3, 2), (5, 2, 3), (32, 11, 3), (32, 12, 0), (5, 4, 0)])
def test_the_first_layer_is_always_among_every_nth(number, count, every):
    facts = dataclasses.replace(FACTS, clusters=(dataclasses.replace(ROWS[0], frequency=number),))
    block = dataclasses.replace(SKIPPING.blocks[0], number=number, called=tuple(range(number)))
    found = express(TRAINER, setting(f"Block+:1:{count}"), facts, dataclasses.replace(SKIPPING, blocks=(block,)))
    assert bool(found.refusals) == (every == 0)
    if every:
        assert [one.chosen for one in found.blocks] == [tuple(range(0, number, every))]


def test_layers_that_are_called_twice_are_refused():
    facts = dataclasses.replace(FACTS, clusters=(dataclasses.replace(ROWS[0], frequency=2 * BLOCKS),))
    assert express(TRAINER, setting("Block+:1:2"), facts, SKIPPING).refusals


def test_every_nth_layer_needs_a_switch_that_counts_these_layers_only():
    fewer = dataclasses.replace(SKIPPING, blocks=(dataclasses.replace(SKIPPING.blocks[0], number=6),))
    assert express(TRAINER, setting("Block+/2:1:-1"), FACTS, fewer).refusals
    assert express(TRAINER, setting("Block+/2:1:-1"), FACTS, SWITCHED).refusals


def test_a_script_without_trainer_has_no_arguments():
    with pytest.raises(UsageError, match="does not train by one"):
        express(TRAINER, setting(), FACTS, LOCATED)


def arguments(found, facts=FACTS, located=SWITCHED):
    text = TRAINER.render(found, heading_of(study_record(facts=facts), found, None), located)
    names: dict = {}
    exec(text, names)
    return names["ARGUMENTS"]


def test_arguments_that_the_installed_version_does_not_have_are_left_out():
    assert arguments(express(TRAINER, setting("Block+:1:-1"), FACTS, SWITCHED)) == {
        "per_device_train_batch_size": 32,
        "gradient_accumulation_steps": 1,
        "gradient_checkpointing": True,
    }


def test_the_switch_has_the_name_that_the_installed_version_does_not_warn_of():
    newer = dataclasses.replace(SWITCHED, trainer_arguments=(*SWITCHED.trainer_arguments, "activation_checkpointing"))
    found = express(TRAINER, setting("Block+:1:-1"), FACTS, newer)
    text = TRAINER.render(found, heading_of(study_record(facts=FACTS), found, None), newer)
    assert '"activation_checkpointing": True' in text
    assert "gradient_checkpointing" not in text


def test_arguments_say_nothing_of_what_the_setting_leaves_as_it_is():
    facts = dataclasses.replace(FACTS, baseline=dataclasses.replace(FACTS.baseline, batch_size=None))
    found = express(TRAINER, dataclasses.replace(setting(), batch_size=None), facts, SWITCHED)
    assert arguments(found, facts) == {"gradient_accumulation_steps": 1}


# -- the proof


class Machine(FakeLauncher):
    """Locates the blocks; everything is measured and compares equal, but for a file that ``fails`` its proof."""

    def __init__(self, *, fails=False, is_cut_off=False):
        super().__init__(lambda configuration: measured(100.0, 32, 2.0), environment=STUDY_FACTS.environment)
        self.fails, self.is_cut_off = fails, is_cut_off

    def run(self, request, *, directory, **how):
        if request.mode == "locate":
            return RunResult((None,), None, None, directory, located=None if self.is_cut_off else LOCATED)
        if request.mode == "verify" and request.written and self.fails:
            return RunResult((ScriptError("ValueError: boom"),), None, None, directory)
        return super().run(request, directory=directory, **how)


def take(folder, *plans, repetitions=1, told=lambda what, outcome: None, interruption=None, nearest=False, **machine):
    plans = plans or ("Block+:1:2",)
    exporting = FileExport(
        study_record(facts=FACTS), TORCH, folder / "mine.py", limit_bytes=1 << 40, launcher=Machine(**machine),
        interruption=interruption or Interruption(), runs=folder, told=told,
    )  # fmt: skip
    return exporting.write(setting(*plans), nearest=nearest, repetitions=repetitions)


def test_a_file_is_a_proven_one_or_none(tmp_path):
    assert take(tmp_path / "proven").shown.proof.answer == "exact"
    with pytest.raises(
        ExportError, match=r"was not shown to compute.*so it was not written: Equivalence unknown.*boom"
    ):
        take(tmp_path / "unknown", fails=True)


def test_the_command_for_the_nearest_writes_to_the_same_file(tmp_path):
    with pytest.raises(ExportError, match="cannot be written so") as refused:
        take(tmp_path, "gelu+native_dropout+:1:-1")
    assert f"--nearest --output {tmp_path / 'mine.py'}`" in refused.value.hint


@pytest.mark.parametrize("nearest", [False, True])
def test_the_script_itself_is_no_nearest_setting(nearest, tmp_path, monkeypatch):
    nothing = Expressed(FACTS.baseline, refusals=(Refusal("it draws at random"),))
    monkeypatch.setattr(exporting, "express", lambda *_: nothing)
    with pytest.raises(ExportError, match="cannot be written so, nor anything near it: it draws at random") as refused:
        take(tmp_path, "gelu+native_dropout+:1:-1", nearest=nearest)
    assert "--nearest" not in refused.value.hint


def test_what_is_stopped_at_once_is_no_failure_of_the_script(tmp_path):
    interruption = Interruption()

    def stop(what, outcome):
        interruption.cancel.set()

    assert take(tmp_path, told=stop, interruption=interruption, is_cut_off=True) is None


def test_the_second_repetition_is_the_reverse_of_the_first(tmp_path):
    told = []
    take(tmp_path, repetitions=2, told=lambda what, outcome: told.append(what) if outcome else None)
    first, second = ([what.partition(": ")[2] for what in told if what.startswith(f"repetition {n}")] for n in (1, 2))
    assert len({*first}) == 3
    assert second == first[::-1]


# -- files


@pytest.mark.parametrize("plans", [(), ("Block+:1:3",)])
def test_plain_code_is_python_without_autotune_and_states_its_sizes(plans):
    found = said(*plans)
    text = TORCH.render(found, heading_of(study_record(facts=FACTS), found, None), LOCATED)
    tree = ast.parse(text)
    imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    assert imported <= {"contextlib", "functools", "torch"}
    assert "BATCH_SIZE = 32  # per process; the script's own is 16" in text
    assert "apply" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert max(map(len, text.splitlines())) <= 120
    assert len(text.splitlines()) < 60


def test_names_of_the_user_do_not_end_the_docstring():
    found = said()
    record = study_record(facts=FACTS)
    spec = dataclasses.replace(record.spec, script='/a/"""\nimport os\n\\x.py')
    record = dataclasses.replace(record, name='s"""\nimport os', spec=spec)
    tree = ast.parse(TORCH.render(found, heading_of(record, found, None), LOCATED))
    assert not any(isinstance(node, ast.Import) for node in tree.body)


def test_a_folder_that_may_not_be_written_to_is_told_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(ExportError, match="may not be written to") as refused:
        check_free(tmp_path / "new" / "recompute.py")
    assert "make room" not in refused.value.hint


def test_only_an_older_file_of_ours_is_replaced(tmp_path):
    path, found = tmp_path / "recompute.py", said("Block+:1:3")
    text = TORCH.render(found, heading_of(study_record(facts=FACTS), found, None), LOCATED)
    path.write_text("mine")
    with pytest.raises(ExportError, match="there already"):
        write_whole(path, text)
    assert path.read_text() == "mine"
    path.unlink()
    assert write_whole(path, text).read_text() == text
    check_free(path)
    write_whole(path, text + "# again\n")
    assert path.read_text().endswith("# again\n")
    assert [one.name for one in tmp_path.iterdir()] == ["recompute.py"]
