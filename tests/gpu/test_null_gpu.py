"""Cards and drivers of all kinds, which a machine has one of at most: on the GPU without kernels, figures are exact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.records.outcome import OutOfMemory
from tests.gpu.running import IS_NULL, measured, run

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not IS_NULL, reason="a GPU is what it is")]

MIB = 2**20
CONTEXT = 520 * MIB  # of null_gpu.c
KINDS = {
    "pids of its own": {},
    "pids of the host": {"NULL_GPU_PIDS": "host"},
    "no pids": {"NULL_GPU_PIDS": "none"},
    "a slice": {"NULL_GPU_MIG": "on"},
    "a neighbour": {"NULL_GPU_NEIGHBOUR": "3000"},
    "ECC off": {"NULL_GPU_ECC": "off"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_run_takes_is_exact_whatever_nvml_tells(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KINDS[kind].items():
        monkeypatch.setenv(name, value)

    result = run(tmp_path, "measure", 256, 256)

    peaks = measured(result.outcomes[0], result).measurement.peaks
    assert peaks.reserved is not None
    assert (peaks.device, peaks.non_torch) == (peaks.reserved + CONTEXT, CONTEXT)


def test_without_nvml_doctor_says_what_no_peak_will_hold() -> None:
    doctor = subprocess.run(
        (sys.executable, "-m", "autotune", "doctor"),
        env={**os.environ, "NULL_GPU_NVML": "off"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert "Driver Not Loaded. torch sees one all the same" in doctor.stdout, doctor.stderr


@pytest.mark.parametrize("card", ["rtx4090-24gb", "a100-40gb", "h100-80gb", "h200-141gb"])
def test_a_limit_holds_on_every_card(card: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NULL_GPU", card)

    result = run(tmp_path / "free", "measure", 1024, 4096)
    peak = measured(result.outcomes[0], result).measurement.peaks
    above = run(tmp_path / "above", "measure", 1024, 4096, limit_bytes=peak.fit_bytes)
    below = run(tmp_path / "below", "measure", 1024, 4096, limit_bytes=peak.fit_bytes // 2)

    assert measured(above.outcomes[0], above).measurement.peaks.fit_bytes <= peak.fit_bytes
    assert isinstance(below.outcomes[0], OutOfMemory)
