"""What stands in each file of a bundle."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
from dataclasses import replace

import pytest

from autotune.errors import ExportError
from autotune.export.readme import render_readme
from autotune.export.stack import build_stack, render_stack
from autotune.export.variables import KNOWN, allowed, render_env_sh
from autotune.records.codec import loads
from autotune.records.configuration import Configuration, SizedPlans
from autotune.records.facts import AccumulationControl, BatchControl, EpochFacts, OptimizerFacts
from autotune.records.global_batch import accumulation_seen, accumulation_to_keep
from autotune.records.look_ahead import SeenBatch
from autotune.records.outcome import Measured
from autotune.records.plan import Plan, dump_mem_opt, parse_plans
from autotune.records.stack import GlobalBatch, Stack
from autotune.records.study import Remark
from autotune.records.study_results import figures_of
from autotune.records.units import format_rate
from tests.fakes.study_record import (
    BASELINE,
    FACTS,
    GIB,
    WINNER,
    accumulating,
    baseline_best,
    proof,
    study_record,
    unfinished,
)

FILES = ("mem_opt.json", "stack.json", "env.sh", "report.html")


@pytest.fixture
def stack() -> Stack:
    return build_stack(study_record(), WINNER)


def test_the_files_of_a_winner_are_as_they_were_looked_at(stack, gold):
    gold("bundle/mem_opt.json", dump_mem_opt(parse_plans(stack.plans)))
    gold("bundle/stack.json", render_stack(stack))
    gold("bundle/env.sh", render_env_sh(stack))
    gold("bundle/README.txt", render_readme(stack, "autotune-train", FILES))


def test_the_readme_of_a_baseline_says_that_there_is_nothing_to_do(gold):
    text = render_readme(build_stack(baseline_best(), BASELINE), "autotune-train", FILES[:-1])
    assert "report.html" not in text
    gold("bundle/README-baseline.txt", text)


def test_the_stack_survives_its_file(stack):
    assert loads(Stack, render_stack(stack)) == stack


def test_the_stack_has_the_largest_batch_that_its_setting_was_measured_with():
    record = study_record()
    sizes = iter((9, 7, 8, *[1] * 100))

    def with_batch(one):
        if one.configuration.key != WINNER.key or not isinstance(one.outcome, Measured):
            return one
        largest = SeenBatch(1, size := next(sizes), {"ids": (size,)})
        return replace(one, outcome=Measured(replace(one.outcome.measurement, largest=largest)))

    trials, repeats = (tuple(map(with_batch, found)) for found in (record.trials, record.repeats))
    found = build_stack(replace(record, trials=trials, repeats=repeats), WINNER).measured_batch
    assert found == SeenBatch(1, 9, {"ids": (9,)})


def test_the_stack_has_the_plans_that_smaller_batches_were_measured_with():
    record, sized = study_record(), (SizedPlans(((4, 225),)),)

    def with_sized(one):
        is_it = one.configuration.key == WINNER.key and isinstance(one.outcome, Measured)
        return replace(one, outcome=Measured(replace(one.outcome.measurement, sized=sized))) if is_it else one

    in_repeats = replace(record, repeats=tuple(map(with_sized, record.repeats)))
    in_trials = replace(record, trials=tuple(map(with_sized, record.trials)), repeats=())
    assert build_stack(record, WINNER).sized == ()
    assert build_stack(in_repeats, WINNER).sized == build_stack(in_trials, WINNER).sized == sized
    assert build_stack(in_repeats, BASELINE).sized == ()
    # Its figures are those of the repetitions, and so are its plans.
    assert build_stack(replace(in_trials, repeats=record.repeats), WINNER).sized == ()
    first = next(number for number, one in enumerate(record.repeats) if one.configuration.key == WINNER.key)
    some = [*in_repeats.repeats[:first], record.repeats[first], *in_repeats.repeats[first + 1 :]]
    assert build_stack(replace(record, repeats=tuple(some)), WINNER).sized == ()


# Figures


def test_figures_come_from_the_finalists_repetitions_where_there_are_any():
    figures = figures_of(study_record(), WINNER)
    assert figures is not None
    assert figures.repetitions == 3
    assert figures.samples_per_s_low < figures.samples_per_s < figures.samples_per_s_high
    assert figures.samples_per_s == pytest.approx(186.9, rel=0.005)
    assert figures.peaks.fit_bytes == pytest.approx(22.1 * GIB, rel=1e-6)


def test_figures_of_a_configuration_that_was_measured_once_are_its_trials():
    figures = figures_of(study_record(repeats=()), WINNER)
    assert figures is not None
    assert figures.repetitions == 1
    assert figures.samples_per_s == pytest.approx(186.4, rel=0.005)
    assert figures.samples_per_s_low < figures.samples_per_s < figures.samples_per_s_high


def test_a_failed_or_unknown_configuration_has_no_figures():
    record = study_record()
    assert figures_of(record, Configuration("aot", (), 0, 32)) is None  # out of memory
    assert figures_of(record, Configuration("aot", (), 0, 1024)) is None


@pytest.mark.parametrize(
    ("rate", "text"),
    [(0.53219, "0.532"), (9.9996, "10.00"), (18.7, "18.70"), (99.996, "100.0"), (187.16, "187.2"), (12480.4, "12,480")],
)
def test_rates_have_four_digits(rate, text):
    assert format_rate(rate) == text


# The global batch


@pytest.mark.parametrize(
    ("accumulation", "own", "new", "kept"),
    [
        (4.0, 16, 32, 2.0),
        (1.0, 64, 16, 4.0),
        (1.0, 16, 32, None),  # half a micro-batch
        (3.0, 16, 32, None),  # one and a half
        (4.0, 16, 16, 4.0),
        (4.0, 16, None, 4.0),  # the batch size is left alone
        (4.0, None, 32, None),  # the script's own is not known
    ],
)
def test_the_accumulation_keeps_the_global_batch_or_says_that_none_does(accumulation, own, new, kept):
    assert accumulation_to_keep(accumulation, own, new) == kept


def with_baseline(**changes: object):
    record = study_record()
    first, *rest = record.trials
    assert first.measured is not None
    measurement = dataclasses.replace(first.measured, **changes)  # type: ignore[arg-type]
    outcome = Measured(measurement)
    return dataclasses.replace(record, trials=(dataclasses.replace(first, outcome=outcome), *rest))


def test_accumulation_is_seen_in_the_samples_of_a_step_of_each_process():
    assert accumulation_seen(with_baseline(samples_per_step=(128,) * 23 + (96,), num_processes=2)) == 4.0


def test_a_model_that_is_called_thrice_for_one_batch_does_not_accumulate():
    record = with_baseline(samples_per_step=(16,) * 24, calls_per_step=3.0)
    assert accumulation_seen(record) == 1.0


def test_guessed_samples_say_nothing_about_accumulation_so_the_backwards_do():
    guessed = {"samples_per_step": (640,) * 24, "samples_are_guessed": True, "calls_per_step": 4.0}
    assert accumulation_seen(with_baseline(**guessed, backwards_per_step=2.0)) == 2.0
    assert accumulation_seen(with_baseline(**guessed)) == 4.0


def test_the_readme_says_how_to_keep_the_global_batch():
    stack = build_stack(accumulating(study_record(), 6), WINNER)
    assert stack.accumulation == 6.0
    assert stack.accumulation_for_same_global_batch == 2.0
    text = " ".join(render_readme(stack, "bundle", FILES).split())
    assert "changes from 96 (6 x 16) to 288 (6 x 48) samples per optimizer step" in text
    assert "accumulate gradients over 2 micro-batches instead of 6" in text


def test_where_the_scripts_own_batch_size_is_unknown_the_readme_says_so():
    record = study_record()
    facts = dataclasses.replace(
        record.facts, batch_size=None, baseline=dataclasses.replace(record.facts.baseline, batch_size=None)
    )
    text = render_readme(build_stack(dataclasses.replace(record, facts=facts), WINNER), "bundle", FILES)
    assert "Batch size 48 per process; the script's own is not known." in text


def test_the_readme_says_what_is_put_into_the_arguments(stack):
    given = dataclasses.replace(
        stack, batch_control=BatchControl("arguments"), accumulation_control=AccumulationControl("arguments", 4)
    )
    text, other = (" ".join(render_readme(one, "bundle", FILES).split()) for one in (given, stack))
    assert "in the place of {batch_size} in the arguments" in text
    assert "in the place of {accumulation} in the arguments" in text
    assert "in the place of" not in other


def test_peaks_are_explained_as_they_were_measured(stack):
    on_cpu = dataclasses.replace(stack, environment=dataclasses.replace(stack.environment, device_kind="cpu"))
    text, other = (" ".join(render_readme(one, "bundle", FILES).split()) for one in (on_cpu, stack))
    assert "Peak memory is the high-water mark of the resident set" in text
    assert "Peak memory is what the process takes away from the card" in other


def test_an_epoch_has_the_batches_that_the_loader_makes_of_it():
    assert EpochFacts(100, drops_last=False).batches(16) == 7
    assert EpochFacts(100, drops_last=True).batches(16) == 6


def test_the_global_batch_is_told_with_its_parts_and_the_steps_of_an_epoch():
    record = accumulating(study_record(), 4, num_processes=2)
    facts = dataclasses.replace(FACTS, epoch=EpochFacts(9600, drops_last=False))
    stack = build_stack(dataclasses.replace(record, facts=facts), WINNER)
    assert stack.script_global_batch == GlobalBatch(16, 4.0, num_processes=2, steps_per_epoch=150.0)
    assert stack.global_batch == GlobalBatch(48, 4.0, num_processes=2, steps_per_epoch=50.0)
    assert stack.script_global_batch.samples == 128
    text = " ".join(render_readme(stack, "bundle", FILES).split())
    now = "128 (4 x 16 in each of 2 processes) to 384 (4 x 48 in each of 2 processes)"
    assert f"The global batch changes from {now} samples per optimizer step." in text
    assert "An epoch has 50 instead of 150 optimizer steps." in text


def test_a_script_that_keeps_its_global_batch_by_itself_is_told_to_keep_it():
    own = accumulating(study_record(), 6).trials[0]
    record = dataclasses.replace(study_record(), trials=(own, *accumulating(study_record(), 2).trials[1:]))
    stack = build_stack(record, WINNER)
    assert (stack.accumulation, stack.accumulation_set) == (2.0, 0)
    text = " ".join(render_readme(stack, "bundle", FILES).split())
    assert "The global batch stays 96 samples per optimizer step, now as 2 x 48." in text
    untried = dataclasses.replace(WINNER, batch_size=24)
    assert build_stack(record, untried).accumulation == 6.0, "not measured: as the script does"


def test_a_setting_that_keeps_the_global_batch_says_what_it_accumulates():
    kept = dataclasses.replace(WINNER, batch_size=8, accumulation=12)
    record = with_baseline(samples_per_step=(96,) * 24)
    text = " ".join(render_readme(build_stack(record, kept), "bundle", FILES).split())
    assert "The global batch stays 96 samples per optimizer step, now as 12 x 8." in text
    assert "Have it accumulate gradients over 12 micro-batches per optimizer step." in text
    assert "learning rate" not in text.partition("How to apply it by hand")[0]


def test_the_readme_says_that_gradients_were_compared_only_where_they_were():
    record = study_record()
    text = " ".join(render_readme(build_stack(record, WINNER), "bundle", FILES).split())
    assert "What was checked" in text
    assert "side by side" not in text
    for answer in ("unknown", None):
        proofs = (
            ()
            if answer is None
            else (dataclasses.replace(proof(), answer=answer, statement="Equivalence unknown: why."),)
        )
        unproven = dataclasses.replace(record, verdict=dataclasses.replace(record.verdict, proofs=proofs))
        text = " ".join(render_readme(build_stack(unproven, WINNER), "bundle", FILES).split())
        assert "What was checked" not in text
        assert "gradients, side by side with those of the script as it is." in text
        assert ("Equivalence unknown: why." in text) is (answer is not None)


# The stack


def test_an_explicit_configuration_says_that_it_was_chosen_by_hand():
    configuration = Configuration("aot", (Plan("Block+", 1, -1),), 0, 16)
    stack = build_stack(study_record(), configuration)
    assert stack.plans == ("Block+:1:-1",)
    assert stack.verdict.startswith("chosen by hand; the study's own answer: Batch 48")


def test_a_study_without_facts_has_no_stack():
    with pytest.raises(ExportError, match="before discovery"):
        build_stack(unfinished(), WINNER)


def test_only_known_variables_of_the_measuring_machine_are_carried(stack):
    assert stack.variables == {
        "OMP_NUM_THREADS": "16",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
        "ORTMODULE_MEMORY_OPT_CONFIG": "mem_opt.json",
        "ORTMODULE_MEMORY_OPT_LEVEL": "0",
    }
    assert "LD_PRELOAD" in render_readme(stack, "bundle", FILES)


def test_strings_that_do_not_print_are_written_so_that_they_do():
    record = study_record()
    verdict = dataclasses.replace(record.verdict, reason=Remark("winner", "\x1b[2Jtr\udcffain"))
    stack = build_stack(dataclasses.replace(record, verdict=verdict), WINNER)
    assert stack.verdict == "\\x1b[2Jtr\\udcffain"


def test_script_and_arguments_are_written_as_they_were_typed_and_shown_so_that_they_print():
    record = study_record()
    script, arguments = "\x1b[2Jtr\udcffain.py", ("a\nb", "\u202etxt", "\udcff")
    spec = dataclasses.replace(record.spec, script=f"/x/{script}", arguments=arguments)
    stack = build_stack(dataclasses.replace(record, spec=spec), WINNER)

    written = json.loads(render_stack(stack).encode("utf-8"))
    readme = render_readme(stack, "bundle", FILES)

    assert (written["script_name"], tuple(written["arguments"])) == (script, arguments)
    assert readme.replace("\n", "").isprintable()


def test_the_stack_of_ortmodule_goes_from_the_model_outwards_and_says_what_is_not_in_it():
    record = study_record()
    roots = tuple(dataclasses.replace(root, wrapped_by=("DeepSpeedEngine",)) for root in record.facts.roots)
    configuration = Configuration("ortmodule", (Plan("Gelu+", 1, -1),), 0, 16, ("compute-optimizer=0",))
    facts = dataclasses.replace(record.facts, roots=roots)
    stack = build_stack(dataclasses.replace(record, facts=facts), configuration)
    assert [(layer.name, layer.applies) for layer in stack.layers] == [
        ("ORTModule", True),
        ("AdamW", True),
        ("FusedAdam", False),
        ("DeepSpeedEngine", True),
        ("FP16_Optimizer", False),
    ]
    assert stack.layers[0].settings == {"level": "0", "plans": "Gelu+:1:-1", "compute-optimizer": "0"}
    assert all(layer.applies or "CUDA" in layer.reason for layer in stack.layers)
    assert stack.variables["ORTMODULE_FALLBACK_POLICY"] == "FALLBACK_DISABLE"
    assert stack.variables["ORTMODULE_ENABLE_COMPUTE_OPTIMIZER"] == "0"
    lines = render_readme(stack, "bundle", FILES).splitlines()
    first = lines.index("    from ortmodule_compat import import_ortmodule")
    assert lines[first + 1 : first + 4] == [
        "    ortmodule = import_ortmodule()",
        "    model = ortmodule.ORTModule(model)",
        "",
    ]


# The list of variables


@pytest.mark.parametrize(
    "name",
    [
        *("LD_AUDIT", "LD_LIBRARY_PATH", "PATH", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "HOME", "BASH_ENV"),
        *("PYTORCH_KERNEL_CACHE_PATH", "PYTORCH_JIT", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "CXX"),
        *("ORTMODULE_CACHE_DIR", "ORTMODULE_TUNING_RESULTS_PATH", "MALLOC_CONF", "MALLOC_TRACE", "OMP_TOOL_LIBRARIES"),
        *("NCCL_NET_PLUGIN", "CUDA_INJECTION64_PATH", "omp_num_threads", "OMP_NUM_THREADS ", ""),
    ],
)
def test_variables_that_can_load_code_or_write_files_are_not_on_the_list(name):
    assert name not in KNOWN
    assert not allowed(name, "1")


def test_one_library_of_the_system_may_be_preloaded_and_no_path():
    assert allowed("LD_PRELOAD", "libtcmalloc_minimal.so.4")
    for value in (
        "/home/eve/libtcmalloc_minimal.so.4",
        "./libtcmalloc_minimal.so.4",
        "libtcmalloc_minimal.so.4:evil.so",
    ):
        assert not allowed("LD_PRELOAD", value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OMP_NUM_THREADS", "4,2"),
        ("PYTORCH_ALLOC_CONF", "max_split_size_mb:128,roundup_power2_divisions:[256:1,512:2,>:4]"),
        ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ("OMP_PLACES", "{0:4},{4:4}"),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ],
)
def test_values_that_people_use_are_taken(name, value):
    assert allowed(name, value)


@pytest.mark.parametrize("value", ["", "/etc/passwd", "../x", "$(id)", "`id`", "1\n", "1;id", "a b/c", "x" * 1000])
def test_no_variable_takes_a_path_or_a_command(value):
    assert not [name for name in KNOWN if allowed(name, value)]


# env.sh


@pytest.mark.parametrize("shell", ["bash", "sh"])
@pytest.mark.process
def test_a_shell_reads_env_sh_in_the_bundle_s_folder(shell, stack, tmp_path):
    folder = tmp_path / "my $bundle's"
    folder.mkdir()
    (folder / "env.sh").write_text(render_env_sh(stack))
    (folder / "mem_opt.json").write_text("[]")
    command = '. ./env.sh && printf "%s\\n" "$ORTMODULE_MEMORY_OPT_CONFIG" "$PYTORCH_ALLOC_CONF" "${_bundle-unset}"'
    lines = subprocess.run([shell, "-c", command], cwd=folder, capture_output=True, text=True, check=True).stdout
    assert lines.splitlines() == [str(folder / "mem_opt.json"), "expandable_segments:True", "unset"]


@pytest.mark.process
def test_bash_reads_env_sh_from_anywhere(stack, tmp_path):
    (tmp_path / "env.sh").write_text(render_env_sh(stack))
    (tmp_path / "mem_opt.json").write_text("[]")
    command = f'. {tmp_path}/env.sh; printf "%s" "${{ORTMODULE_MEMORY_OPT_CONFIG-unset}}"'
    done = subprocess.run(["bash", "-c", command], cwd="/", capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (str(tmp_path / "mem_opt.json"), "")


@pytest.mark.skipif(shutil.which("dash") is None, reason="needs dash, a shell without BASH_SOURCE")
@pytest.mark.process
def test_a_shell_that_does_not_know_the_file_s_path_sets_nothing_and_says_where_to_go(stack, tmp_path):
    (tmp_path / "env.sh").write_text(render_env_sh(stack))
    command = f'. {tmp_path}/env.sh; printf "%s" "${{ORTMODULE_MEMORY_OPT_CONFIG-unset}}"'
    done = subprocess.run(["dash", "-c", command], cwd="/", capture_output=True, text=True, check=True)
    assert done.stdout == "unset"
    assert "go to the bundle's folder" in done.stderr


def test_choices_of_torchs_own_are_in_the_stack_where_they_act_and_in_words_for_doing_them_by_hand():
    record = study_record()
    environment = dataclasses.replace(
        record.facts.environment, variables={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}
    )
    adamw = OptimizerFacts("AdamW", {"lr": "0.0003", "foreach": "None", "fused": "None"})
    facts = dataclasses.replace(record.facts, environment=environment, optimizers=(adamw,))
    choices = ("bf16=1", "expandable-segments=1", "fused-optimizer=1")
    configuration = Configuration("eager", (), 0, 16, choices)

    stack = build_stack(dataclasses.replace(record, facts=facts, trials=(), repeats=()), configuration)

    assert stack.choices == choices
    assert [layer.name for layer in stack.layers] == ["autocast", "AdamW", "allocator"]
    autocast, optimizer, allocator = (layer.settings for layer in stack.layers)
    assert (autocast["dtype"], optimizer["fused"], optimizer["lr"]) == ("bfloat16", "True", "0.0003")
    assert allocator == {"expandable_segments": "True"}
    assert stack.variables["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:128,expandable_segments:True"
    assert "max_split_size_mb:128,expandable_segments:True" in render_env_sh(stack)
    words = " ".join(render_readme(stack, "bundle", FILES).split())
    assert "choices bf16=1, expandable-segments=1, fused-optimizer=1" in words
    assert "bf16 changes what is computed: matrix products" in words
    for by_hand in ("`fused=True`", "torch.autocast(device, dtype=torch.bfloat16)", "It has the allocator's settings"):
        assert by_hand in words
    assert "Your model's gradients, side by side" in words, "nobody has proven it"


def test_an_optimizer_that_the_script_decides_about_is_in_the_stack_as_it_is():
    record = study_record()
    own = dataclasses.replace(record.facts.optimizers[0], settings={"foreach": "False", "fused": "None"})
    facts = dataclasses.replace(record.facts, optimizers=(own,))
    stack = build_stack(
        dataclasses.replace(record, facts=facts), Configuration("eager", (), 0, 16, ("fused-optimizer=1",))
    )
    assert [layer.settings for layer in stack.layers] == [own.settings]
