"""What there is to find out on a GPU, in parts of some minutes, the most telling first."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from trials.run import Case, cases

from .folder import DATABASE, FACTS, TESTS
from .sitting import ROOT, Step

# How long a sitting of each takes, if nothing else is asked for.
PARTS = {"first": "150s", "study": "9m", "peers": "9m", "rest": "9m"}
DEFAULT_BUDGET = "9m"
# Seconds that a part can give to one study.
_STUDY_S = {"study": 320.0, "peers": 260.0}
_CONTRACT = "tests/contract/test_memory_meter.py"
# What the first part asks: does a run start, is the device read, does a limit hold, are plans proven?
FIRST_TESTS = (
    "test_torch_and_nvml_call_the_devices_alike",
    "test_nvml_and_torch_agree_on_what_a_process_takes",
    "test_discovery_reports_the_device_and_its_peaks",
    "test_a_limit_below_the_cards_size_is_enforced_and_the_phase_is_told",
    "test_plans_of_one_run_are_measured_one_after_the_other_with_lower_peaks",
    "test_plans_are_proven_with_dropout_on_the_device",
    "test_a_run_is_forked_from_a_server_that_has_opened_no_device",
    "test_attention_is_simulated_and_recomputed_in_whichever_kernel_torch_takes",
    "test_inductor_compiles_plans_that_lower_the_peak",
)
_FIRST_PEERS = ("script", "checkpoint all", "compile")
# Right or wrong whoever else is at work on the device, or not.
_BESIDE, _ALONE = "gpu and not alone", "gpu and alone"
_PROCESSES = 5
# A test that takes longer is taken to hang: less than any step of tests may take.
_LONGEST_TEST_S = 40


def steps(part: str | None, state: Path, *, memory_bytes: int) -> list[Step]:
    """The steps of one of ``PARTS``, or of all of them, on a GPU with so much memory, in their order."""
    parts = {"first": _first, "study": _study, "peers": _peers, "rest": _rest}
    asked = [parts[part]] if part else parts.values()
    found: dict[str, Step] = {}
    for of_part in asked:
        for step in of_part(state, memory_bytes):
            found.setdefault(step.name, step)
    return [*found.values()]


def _first(state: Path, _: int) -> Iterator[Step]:
    facts = (sys.executable, "-m", "trials.sittings.facts", str(state / FACTS))
    yield Step("facts", facts, 20.0, 75.0)
    selection = ("-k", " or ".join(FIRST_TESTS), "tests/gpu", "-m")
    beside = (*selection, _BESIDE)
    yield tests_step("tests: first, side by side", state, *beside, processes=_PROCESSES, least_s=15.0, most_s=45.0)
    yield tests_step("tests: first, alone", state, *selection, _ALONE, processes=0, least_s=15.0, most_s=45.0)
    discover = (sys.executable, "-m", "autotune", "discover", str(ROOT / "trials/gpt2/train.py"))
    yield Step("discovery: gpt2", (*discover, "--", "--batch-size", "8"), 15.0, 60.0, is_of_code=True)


def _study(state: Path, memory_bytes: int) -> Iterator[Step]:
    everything = ("tests/gpu", _CONTRACT, "-m")
    beside = (*everything, _BESIDE)
    yield tests_step("tests: side by side", state, *beside, processes=_PROCESSES, least_s=60.0, most_s=130.0)
    yield tests_step("tests: alone", state, *everything, _ALONE, processes=0, least_s=30.0, most_s=110.0)
    for case in _named("gpt2-24GB", memory_bytes):
        yield study_step(case, state, most_s=_STUDY_S["study"])


def _peers(state: Path, memory_bytes: int) -> Iterator[Step]:
    for case in _named("deberta-24GB", memory_bytes):
        yield study_step(case, state, most_s=_STUDY_S["peers"])
        yield _first_peers(case, state)
    for case in _named("gpt2-24GB", memory_bytes):
        yield _first_peers(case, state)


def _rest(state: Path, memory_bytes: int) -> Iterator[Step]:
    # Small batches are bound by launches, large ones by the GPU.
    yield noise_step("charlm", "4,512", state, "--repetitions", "6")
    for case in _named("llama-24GB", memory_bytes):
        yield study_step(case, state)
        yield _first_peers(case, state)
    yield landscape_step(state)
    fitting = [case for case in cases("cuda") if case.is_for(memory_bytes)]
    for case in fitting:
        yield study_step(case, state)
        yield peers_step(case, state, "--repetitions", "3")
    for case in fitting:
        yield more_peers_step(case, state)


def _named(name: str, memory_bytes: int) -> list[Case]:
    return [case for case in cases("cuda", [name]) if case.is_for(memory_bytes)]


def tests_step(name: str, state: Path, *selection: str, processes: int, least_s: float, most_s: float) -> Step:
    """Run tests that have not passed yet, with the interpreter and the packages that are there."""
    # Warnings of other versions than those that CI has are no failures here.
    options = ("-v", "-o", "filterwarnings=default", "-p", "no:cacheprovider", "--timeout", str(_LONGEST_TEST_S))
    options += ("-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT))
    at_once = ("-n", str(processes), "--dist", "worksteal")
    remember = ("-p", "tests.remembering", "--remember", str(state / TESTS))
    selection = tuple(str(ROOT / word) if word.startswith("tests/") else word for word in selection)
    command = (sys.executable, "-m", "pytest", *options, *at_once, *remember, *selection)
    # 5: all of them have passed before.
    return Step(name, command, least_s, most_s, frozenset({0, 5}), is_of_code=True)


def study_step(case: Case, state: Path, *, most_s: float | None = None) -> Step:
    """A case's study, which goes on where it stopped."""
    command = (sys.executable, str(ROOT / "trials/run.py"), case.name, "--within", "{seconds}s")
    command += (*(["--check"] if case.expected else []), "--storage", _storage(state), "--output", str(state))
    most_s = min(most_s or case.needed_s, case.needed_s)
    return Step(f"study: {case.name}", command, min(150.0, most_s / 2), most_s)


def peers_step(case: Case, state: Path, *options: str, is_after_end: bool = True) -> Step:
    """A case's peers, with its study's answer among them."""
    command = (*_peers_of(case, state), *options)
    after = f"study: {case.name}"
    return Step(f"peers: {case.name}", command, 60.0, 500.0, after=after, is_after_end=is_after_end)


def _first_peers(case: Case, state: Path) -> Step:
    """A few of them, also beside an answer that no repetitions have confirmed yet: these repetitions tell as much."""
    names = (word for name in _FIRST_PEERS for word in ("--peer", name))
    return peers_step(case, state, "--repetitions", "3", *names, is_after_end=False)


def more_peers_step(case: Case, state: Path) -> Step:
    """The rest of the peers and of their repetitions."""
    after = f"peers: {case.name}"
    return Step(f"more repetitions of {after}", _peers_of(case, state), 60.0, 500.0, after=after)


def _peers_of(case: Case, state: Path) -> tuple[str, ...]:
    command = (sys.executable, "-m", "tests.benchmarks.peers", case.name, "--budget", "{seconds}s")
    command += ("--records", str(state / "records"), "--runs", str(state / "peers"))
    return (*command, "--study", case.name, "--storage", _storage(state))


def _storage(state: Path) -> str:
    return f"sqlite:///{state / DATABASE}"


def noise_step(workload: str, batch_sizes: str, state: Path, *options: str) -> Step:
    """How far runs of one and the same thing scatter."""
    command = (sys.executable, "-m", "tests.benchmarks.noise", workload, "--batch-sizes", batch_sizes)
    command += ("--records", str(state / "records"), "--budget", "{seconds}s", *options)
    return Step(f"noise: {workload}", command, 60.0, 200.0)


def landscape_step(state: Path) -> Step:
    """Every configuration of a small space, really run, for the benchmark of the search."""
    record, folder = str(ROOT / "tests/benchmarks/landscapes/record.py"), state / "landscapes"
    script = (str(ROOT / "trials/gpt2/train.py"), "--", "--steps", "100000")
    options = ("--batch-sizes", "4,8,16,32", "--fits", "0.7", "--passes", "2", "--output", str(folder))
    options += ("--keep", str(folder / "runs-gpt2.json"), "--within", "{seconds}s")
    return Step("landscape: gpt2", (sys.executable, record, "recorded-gpt2-gpu", *options, *script), 120.0, 520.0)
