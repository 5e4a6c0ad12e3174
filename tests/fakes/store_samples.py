"""Records to put in a store."""

from __future__ import annotations

from autotune.records.configuration import Configuration
from autotune.records.environment import Environment
from autotune.records.facts import BatchControl, ClusterFacts, Facts
from autotune.records.measurement import Measurement, Peaks
from autotune.records.outcome import Measured, OutOfMemory
from autotune.records.plan import parse_plans
from autotune.records.study import Comparison, Remark, StudySpec, Verdict

SPEC = StudySpec(script="/home/user/train.py", arguments=("--batch_size", "{batch_size}"), own_batch_size=8)
BASELINE = Configuration(batch_size=8)
PLANNED = Configuration("aot", parse_plans(["gelu+:1:2"]), batch_size=16)
ENVIRONMENT = Environment(
    device_kind="cpu",
    device_name="a processor",
    device_memory_bytes=8 << 30,
    num_devices=1,
    num_threads=2,
    hostname="here",
    platform="Linux",
    python="3.11.9",
    torch="2.13.0",
    variables={"OMP_NUM_THREADS": "2"},
)
MEASURED = Measured(
    Measurement(
        step_times_s=(0.25, 0.5, 0.25),
        samples_per_step=(8, 8, 8),
        peaks=Peaks(resident=5 << 30),
        warmup_steps=2,
        warmup_s=1.5,
        batch_size=8,
        calls_per_step=1.0,
    )
)
# A log line as read from a file that is not UTF-8, with a NUL: neither fits into a database as it is.
FAILED = OutOfMemory(cause="no memory", log_tail=("\udcff\x00 é",), phase="backward", limit_bytes=1 << 40)
FACTS = Facts(
    baseline=BASELINE,
    batch_size=8,
    batch_control=BatchControl("loaders", (0,)),
    clusters=(ClusterFacts("gelu+", 1, 4, 1024, "128*batch", 0.001),),
    dimensions={"batch": 8},
    split=None,
    roots=(),
    optimizers=(),
    precision=None,
    environment=ENVIRONMENT,
    calls_per_step=1.0,
    script_sha256="0" * 64,
)
VERDICT = Verdict(
    kind_of_answer="winner",
    winner=PLANNED,
    reason=Remark("winner", "It is faster."),
    stop_reason="time",
    memory_limit_bytes=8 << 30,
    comparisons=(Comparison(PLANNED, 1.125, 1.1, 1.15, repetitions=4, found="win"),),
)
