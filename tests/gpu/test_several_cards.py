"""Training over several processes with a card each, which communicate over NCCL.

On the GPU without kernels nothing is sent. DistributedDataParallel compares shapes that it gets, and refuses there; how
it is followed is tested over Gloo.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from autotune.launch.process import ProcessLauncher
from autotune.predict.device_peak import DevicePeak, peak_of
from autotune.records.configuration import Configuration
from autotune.records.outcome import Measured, OutOfMemory
from autotune.records.run import Request

from .running import IS_NULL, QUICK, logs
from .test_absent_card import PLAIN, SEQUENCE, SHARDED, followed, source, this_card

MIB = 2**20
OUTSIDE = (520 + 64) * MIB  # CONTEXT and BUFFERS of null_gpu.c
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not IS_NULL and torch.cuda.device_count() < 2, reason="no two CUDA devices"),
]
OWN_CARD = "import os\ntorch.cuda.set_device(int(os.environ['LOCAL_RANK']))\nmodel = Model().cuda()\n"
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


@pytest.fixture(autouse=True)
def _cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NULL_GPU_COUNT", "4")
    # Tests of this folder set the size of cuBLAS' workspace.
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def sharded(how: str = "") -> str:
    made = SHARDED.format(how=how).replace("model = Model().cuda()\n", OWN_CARD)
    return source(PLAIN, SEQUENCE).replace("model = Model().cuda()\n", made)


@pytest.mark.parametrize("number", [2, 4])
@pytest.mark.parametrize("how", ["", "reshard_after_forward=False"], ids=["sharded", "kept gathered"])
def test_a_process_that_is_followed_alone_needs_what_each_of_several_does(
    how: str, number: int, tmp_path: Path
) -> None:
    script, text = tmp_path / "train.py", sharded(how)
    figures = "PEAKS {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}"
    # In one write, as the other processes print, too.
    script.write_text(f"{text}\nprint(f'{figures}\\n', end='', flush=True)\n")
    command = [sys.executable, *LAUNCHER, str(number), str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = [DevicePeak(*map(int, line.split()[1:])) for line in ran.stdout.splitlines() if line.startswith("PEAKS")]
    script.write_text(text)
    peak = peak_of(followed(script, tmp_path / "runs", number=number), this_card())
    assert [one.allocated for one in found] == [pytest.approx(peak.allocated, rel=0.003)] * number
    assert [one.reserved for one in found] == [pytest.approx(peak.reserved, rel=0.003 if IS_NULL else 0.07)] * number


def test_each_rank_has_its_cards_peak_and_the_limit_holds_on_each(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(sharded().replace("    if step == 1:\n        break\n", "").replace("(64", "(1024"))
    launcher = ProcessLauncher(
        python=sys.executable,
        root=tmp_path / "runs",
        working_directory=tmp_path,
        start_timeout_s=180,
        trial_timeout_s=120,
    )
    torchrun = str(Path(sys.executable).with_name("torchrun"))
    request = Request(
        "measure", torchrun, ("--standalone", "--nproc-per-node", "2", str(script)), (Configuration(),), measuring=QUICK
    )

    def run(devices: tuple[int, ...], limit_bytes: int | None = None) -> object:
        limited = replace(request, memory_limit_bytes=limit_bytes)
        result = launcher.run(limited, devices=devices, on_event=lambda _: None, cancel=threading.Event())
        assert result.outcomes[0] is not None, logs(result)
        return result.outcomes[0]

    # Of four cards two others than the first.
    outcome = run((1, 3))
    assert isinstance(outcome, Measured), outcome
    peaks = outcome.measurement.rank_peaks
    assert len(peaks) == 2
    if IS_NULL:
        assert [one.device for one in peaks] == [(one.reserved or 0) + OUTSIDE for one in peaks]
    fitting = max(one.fit_bytes for one in peaks)
    assert isinstance(run((1, 3), fitting), Measured)
    assert isinstance(run((1, 3), fitting // 2), OutOfMemory)


@pytest.mark.skipif(not IS_NULL, reason="it knows the cards")
def test_cards_are_those_that_the_variable_names() -> None:
    uuids = "torch.cuda.get_device_properties(number).uuid for number in range(torch.cuda.device_count())"

    def seen(visible: str) -> list[str]:
        variables = {**os.environ, "CUDA_VISIBLE_DEVICES": visible}
        command = [sys.executable, "-c", f"import torch; print(*({uuids}))"]
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()

    first, second, *_ = seen("0,1,2,3")
    assert first != second
    assert seen("1,0") == [second, first]
    assert seen(f"GPU-{second}") == [second]
    assert seen("0,9,1") == [first]
    assert seen("") == []
