"""Studies as they stand in a database after a search, with figures that could be real."""

from __future__ import annotations

import dataclasses
import random

from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.facts import BatchControl, ClusterFacts, Facts, OptimizerFacts, PrecisionFacts, RootFacts
from autotune.records.figures import Figures, summary_of
from autotune.records.graph import Calibration
from autotune.records.matrix import MemoryPhase, PhaseMemory
from autotune.records.measurement import Measurement, MemorySplit, Peaks
from autotune.records.outcome import Measured, OutOfMemory, ScriptError, TimedOut
from autotune.records.plan import Plan
from autotune.records.proof import GROUPS, GroupDifference, Proof, widest
from autotune.records.study import Comparison, Remark, Repeat, StudyRecord, StudySpec, Trial, Verdict

GIB = 1 << 30
LIMIT_BYTES = 24 * GIB
CREATED_AT = 1_780_000_000.0

BASELINE = Configuration("eager", (), 0, 16)
LAYERS, GELU, SOFTMAX = Plan("Block+", 1, 4), Plan("gelu+", 1, -1), Plan("_softmax+", 1, -1)
WINNER = Configuration("aot", (LAYERS, GELU), 0, 48)

ENVIRONMENT = Environment(
    device_kind="cuda",
    device_name="NVIDIA GeForce RTX 4090",
    device_memory_bytes=LIMIT_BYTES,
    num_devices=1,
    num_threads=16,
    hostname="workstation",
    platform="Linux-6.8-x86_64",
    python="3.11.7",
    torch="2.13.0+cu130",
    cuda="13.0",
    driver="590.44",
    variables={
        "LD_PRELOAD": "/usr/lib/libtcmalloc.so.4",
        "OMP_NUM_THREADS": "16",
        "PYTORCH_ALLOC_CONF": "expandable_segments:True",
    },
)


def _phase(phase: MemoryPhase, allocated: int, peak: int, gradients: int) -> PhaseMemory:
    return PhaseMemory(
        phase, step=9, allocated=allocated, max_allocated=14_290_000_000, peak=peak, parameters=497_759_232,
        gradients=gradients, buffers=12_582_912, cached=15_032_385_536, max_cached=15_032_385_536, inactive=219 * 2**20,
        max_inactive=816 * 2**20,
    )  # fmt: skip


FACTS = Facts(
    baseline=BASELINE,
    batch_size=16,
    batch_control=BatchControl("loaders", (0,)),
    clusters=(
        ClusterFacts("Block+", 1, 12, 9_663_676_416, "50331648*batch", 0.0412, is_layer=True),
        ClusterFacts("gelu+", 1, 12, 1_610_612_736, "8*batch*seq*dim", 0.0021),
        ClusterFacts("_softmax+", 1, 12, 3_221_225_472, "4*batch*heads*seq**2", 0.0063),
        ClusterFacts("mul+add+", 1, 25, 838_860_800, "4*batch*seq*dim", 0.0017, note="layer norms"),
        ClusterFacts("native_dropout+", 1, 24, 209_715_200, "batch*seq*dim", 0.0009),
    ),
    dimensions={"batch": 16, "seq": 1024, "dim": 768, "heads": 12},
    split=MemorySplit(497_759_232, 497_759_232, 995_518_464, 12_582_912, 12_348_030_976),
    roots=(RootFacts("GPT", 124_439_808, 124_439_808, 1),),
    optimizers=(OptimizerFacts("AdamW", {"lr": "0.0003", "weight_decay": "0.1"}),),
    precision=PrecisionFacts("float32", "bfloat16"),
    environment=ENVIRONMENT,
    calls_per_step=1.0,
    script_sha256="9f2c" * 16,
    memory_matrix=(
        _phase("pre_forward", 1_543_503_872, 2_541_748_224, 0),
        _phase("post_forward", 13_891_534_848, 13_891_534_848, 0),
        _phase("pre_backward", 13_891_534_848, 13_891_534_848, 0),
        _phase("post_backward", 2_041_262_080, 14_290_000_000, 497_759_232),
    ),
    notes=("The last batch of an epoch is smaller; its steps were left out.",),
    calibration=Calibration(
        ENVIRONMENT.torch,
        ENVIRONMENT.device_name,
        "float32/bfloat16",
        ENVIRONMENT.num_threads,
        {"batch": 16},
        error=0.012,
    ),
)


def measured(rate: float, batch: int, peak_gib: float, *, seed: int = 0, retries: int = 0) -> Measured:
    """A trial of about ``rate`` samples/s at ``peak_gib``."""
    chance = random.Random(seed)
    step = batch / rate
    return Measured(
        Measurement(
            step_times_s=tuple(round(step * chance.uniform(0.994, 1.006), 6) for _ in range(24)),
            samples_per_step=(batch,) * 24,
            peaks=Peaks(
                device=int((peak_gib + 0.4) * GIB),
                allocated=int((peak_gib - 0.9) * GIB),
                reserved=int((peak_gib - 0.5) * GIB),
                non_torch=GIB // 2,
                resident=3 * GIB,
            ),
            warmup_steps=4,
            warmup_s=1.9,
            batch_size=batch,
            calls_per_step=1.0,
            allocator_retries=retries,
            split=FACTS.split,
            saved_bytes=12_348_030_976,
        )
    )


def out_of_memory(needed_gib: float | None = None) -> OutOfMemory:
    """A trial that the card did not hold."""
    return OutOfMemory(
        cause="CUDA out of memory in backward: 2.50 GiB asked for, 1.12 GiB free",
        log_tail=("torch.OutOfMemoryError: CUDA out of memory.",),
        advice="a smaller batch size, or more plans",
        phase="backward",
        limit_bytes=LIMIT_BYTES,
        needed_bytes=None if needed_gib is None else int(needed_gib * GIB),
    )


_SEARCHED = (
    (BASELINE, measured(158.2, 16, 15.9, seed=1)),
    (Configuration("aot", (), 0, 16), measured(159.0, 16, 15.2, seed=2)),
    (Configuration("aot", (), 0, 24), measured(171.5, 24, 21.9, seed=3)),
    (Configuration("aot", (), 0, 32), out_of_memory(28.4)),
    (Configuration("aot", (GELU,), 0, 24), measured(170.1, 24, 19.6, seed=4)),
    (Configuration("aot", (GELU, SOFTMAX), 0, 24), measured(166.0, 24, 15.8, seed=5)),
    (Configuration("aot", (GELU, SOFTMAX), 0, 32), measured(175.6, 32, 20.1, seed=6)),
    (Configuration("aot", (Plan("Block+", 1, -1),), 0, 16), measured(128.4, 16, 6.3, seed=7)),
    (Configuration("aot", (Plan("Block+", 1, -1),), 0, 48), measured(151.1, 48, 14.1, seed=8)),
    (Configuration("aot", (Plan("Block+", 1, -1),), 0, 96), measured(156.9, 96, 25.6, seed=9)),
    (Configuration("aot", (Plan("Block+", 1, 6), GELU), 0, 48), measured(179.2, 48, 20.2, seed=10)),
    (WINNER, measured(186.4, 48, 22.1, seed=11)),
    (Configuration("aot", (Plan("Block+", 1, 2), GELU, SOFTMAX), 0, 40), measured(182.0, 40, 21.0, seed=12)),
    (Configuration("aot", (Plan("Block+", 1, 2), GELU), 0, 44), measured(121.3, 44, 23.8, seed=13, retries=7)),
    (Configuration("aot", (Plan("Block+", 1, 2),), 0, 56), out_of_memory()),
    (
        Configuration("aot", (Plan("mul+add+", 1, -1),), 0, 24),
        TimedOut(cause="no training step within 120 s", advice="allow more time with --trial-timeout", phase="forward"),
    ),
    (
        Configuration("aot", (LAYERS,), 0, 20),
        ScriptError(cause="ValueError: batch size must be a multiple of 8", advice="see the script's traceback"),
    ),
)


def trials() -> tuple[Trial, ...]:
    """The trials of a search: good ones, one over the limit, one that thrashes, and failures of several kinds."""
    return tuple(
        Trial(
            number=number,
            configuration=configuration,
            state="finished",
            outcome=outcome,
            environment=ENVIRONMENT,
            started_at=CREATED_AT + 20.0 * number,
            finished_at=CREATED_AT + 20.0 * number + 14.5,
            run_directory=f"/home/ada/.autotune/runs/{number:04d}",
        )
        for number, (configuration, outcome) in enumerate(_SEARCHED)
    )


def repeats() -> tuple[Repeat, ...]:
    """Three repetitions of the winner, interleaved with the baseline."""
    repetitions = ((158.0, 186.9), (158.9, 185.2), (157.1, 187.8))
    return tuple(
        Repeat(configuration, number, measured(rate, batch, peak, seed=100 + 2 * number + at), ENVIRONMENT)
        for number, rates in enumerate(repetitions)
        for at, (configuration, rate, batch, peak) in enumerate(
            ((BASELINE, rates[0], 16, 15.9), (WINNER, rates[1], 48, 22.1))
        )
    )


def _figures_in_repetitions(configuration: Configuration) -> Figures:
    own = [one.outcome for one in repeats() if one.configuration == configuration]
    return summary_of([one.measurement for one in own if isinstance(one, Measured)])


def accumulating(record: StudyRecord, micro_batches: int, num_processes: int = 1) -> StudyRecord:
    """Return the study of a script that takes so many micro-batches per step, whatever their size."""

    def taken(trial: Trial) -> Trial:
        if trial.measured is None:
            return trial
        samples = micro_batches * num_processes * (trial.configuration.batch_size or 1)
        step = {"samples_per_step": (samples,) * 24, "num_processes": num_processes}
        return dataclasses.replace(trial, outcome=Measured(dataclasses.replace(trial.measured, **step)))

    return dataclasses.replace(record, trials=tuple(map(taken, record.trials)))


def study_record(**changes: object) -> StudyRecord:
    """A finished study of a small GPT on a 24 GiB card, that found a winner."""
    comparison = Comparison(
        configuration=WINNER,
        speedup=1.183,
        speedup_low=1.166,
        speedup_high=1.195,
        figures=_figures_in_repetitions(WINNER),
        baseline_figures=_figures_in_repetitions(BASELINE),
        repetitions=3,
        found="win",
    )
    record = StudyRecord(
        name="train-9f2c",
        spec=StudySpec(
            script="/home/ada/gpt/train.py",
            arguments=("--data", "my books", "--epochs=3"),
            working_directory="/home/ada/gpt",
            python="/home/ada/venv/bin/python",
            time_budget_s=600.0,
        ),
        created_at=CREATED_AT,
        autotune="0.1.0",
        facts=FACTS,
        trials=trials(),
        repeats=repeats(),
        verdict=Verdict(
            kind_of_answer="winner",
            winner=WINNER,
            reason=Remark(
                "winner",
                "Batch 48 with Block+:1:4 and gelu+:1:-1 gives 1.18x as many samples per second as your baseline.",
            ),
            remarks=(),
            stop_reason="what is untried is at most 0.6 % better than the best",
            memory_limit_bytes=LIMIT_BYTES,
            comparisons=(comparison,),
            proofs=(proof(),),
        ),
    )
    return dataclasses.replace(record, **changes)  # type: ignore[arg-type]


def proof() -> Proof:
    """The winner's: exact, and as far from the script as its engine rounds."""
    equal = tuple(GroupDifference(group, 300) for group in GROUPS if group != "outputs")
    rounded = widest([equal, (GroupDifference("gradients", 300, 280, "head.weight", 1, 2.4e-05, 8.1e-04),)])
    return Proof(
        configuration=WINNER,
        answer="exact",
        statement="In the first 3 steps at batch 48, with the same seeds, losses, gradients and buffers have the same "
        "bits as without plans. The engine itself differs from the unmodified script, with and without plans: "
        "gradients by up to 8.1e-04 of the largest (head.weight, step 1). The random generators are in the "
        "script's state after each step.",
        steps=3,
        equal_to_engine=True,
        random_equal=True,
        to_engine=equal,
        to_script=rounded,
        engine_to_script=rounded,
    )


def baseline_best() -> StudyRecord:
    """A study whose answer is that the script is best left alone."""
    record = study_record()
    assert record.verdict is not None
    verdict = dataclasses.replace(
        record.verdict,
        kind_of_answer="baseline_best",
        winner=BASELINE,
        reason=Remark(
            "nothing_better", "Your baseline is already the best: nothing tried is faster by more than the noise."
        ),
        remarks=(),
        comparisons=(),
    )
    return dataclasses.replace(record, verdict=verdict, repeats=())


def unfinished() -> StudyRecord:
    """A study that was just started: nothing found yet."""
    return study_record(facts=None, trials=(), repeats=(), verdict=None)


def cpu_study() -> StudyRecord:
    """A study on a CPU, where the resident set is the only peak, and with one trial still running."""
    record = study_record()
    environment = dataclasses.replace(
        ENVIRONMENT,
        device_kind="cpu",
        device_name="AMD EPYC 7B13",
        cuda=None,
        driver=None,
        num_threads=2,
        device_memory_bytes=8 * GIB,
    )
    facts = dataclasses.replace(FACTS, environment=environment, split=None)
    kept = [
        dataclasses.replace(trial, environment=environment, outcome=_on_cpu(trial.outcome))
        for trial in record.trials
        if trial.measured is not None
    ]
    running = Trial(
        number=99, configuration=Configuration("aot", (SOFTMAX,), 0, 32), state="running", started_at=CREATED_AT
    )
    return dataclasses.replace(record, facts=facts, trials=(*kept, running), repeats=(), verdict=None)


def _on_cpu(outcome: Measured | None) -> Measured:
    assert outcome is not None
    measurement = outcome.measurement
    resident = measurement.peaks.fit_bytes // 4
    return Measured(dataclasses.replace(measurement, peaks=Peaks(resident=resident)))
