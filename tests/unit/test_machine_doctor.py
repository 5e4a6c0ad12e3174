"""What `autotune doctor` finds."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from autotune.machine.devices import Gpus
from autotune.machine.doctor import examine
from autotune.machine.interpreter import Torch
from tests.fakes.memory_meter import fake_gpu

pytestmark = pytest.mark.process


def test_an_interpreter_with_torch_can_run_studies() -> None:
    findings = {finding.name: finding for finding in examine(sys.executable)}
    assert findings["Python"].good
    assert findings["torch"].good
    assert "Host memory" in findings
    assert all(finding.means.endswith(".") for finding in findings.values())


@pytest.mark.parametrize("has_headers", [True, False])
def test_an_interpreter_that_nothing_can_be_compiled_for_is_named_with_the_package_it_lacks(
    tmp_path: Path, has_headers: bool
) -> None:
    answer = json.dumps({"version": [3, 12, 4], "torch": "2.13.0", "has_headers": has_headers})
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{answer}'\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    headers = {finding.name: finding for finding in examine(str(python))}["Python's headers"]
    assert headers.good is has_headers
    assert not headers.required
    assert ("python3.12-dev" in headers.means) is not has_headers
    assert "Triton" in headers.means


def test_an_interpreter_without_torch_is_named_as_what_is_missing(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    findings = {finding.name: finding for finding in examine(str(bare))}
    assert findings["Python"].good
    assert not findings["torch"].good
    assert findings["torch"].required
    assert "ModuleNotFoundError" in findings["torch"].found


def test_a_torch_that_is_too_old_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.doctor.look_at_torch", lambda python: Torch("2.9.1+cpu", num_threads=2))
    torch = {finding.name: finding for finding in examine(sys.executable)}["torch"]
    assert (torch.found, torch.good, torch.required) == ("2.9.1+cpu, built for CPU", False, True)
    assert "2.11 or newer" in torch.means


def test_an_interpreter_that_does_not_run_is_no_traceback(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in examine(str(tmp_path / "absent"))}
    assert not findings["Python"].good
    assert findings["Python"].required
    assert "Python's headers" not in findings


def test_a_gpu_that_torch_does_not_see_is_named_with_what_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = fake_gpu("GPU-aa", total=80 * 2**30, used=2**30)
    monkeypatch.setattr("autotune.machine.doctor.read_gpus", lambda: Gpus((gpu,), "580.65"))
    findings = {finding.name: finding for finding in examine("/no/such/python")}
    assert findings["GPU 0"].found == "Fake, 80 GiB, 1 GiB in use now"
    assert findings["GPU 0"].means == "Peaks are NVML's, device 0 of --devices."
    assert findings["NVML"].found == "driver 580.65"
    assert not findings["torch and GPU"].good


def test_a_gpu_that_only_torch_sees_is_named_with_what_is_then_in_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.machine.doctor.read_gpus", lambda: Gpus((), problem="NVML did not answer"))
    monkeypatch.setattr("autotune.machine.doctor.look_at_torch", lambda python: Torch("2.13", cuda="13", num_devices=1))
    findings = {finding.name: finding for finding in examine("/no/such/python")}
    assert findings["GPU"].found == "NVML did not answer"
    assert "memory outside torch is in no peak. Mend the driver" in findings["GPU"].means
    assert not findings["GPU"].good


def test_without_a_compiler_there_is_one_thing_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    findings = {finding.name: finding for finding in examine("/no/such/python")}
    assert findings["C++ compiler"].found == "none"
    assert "Inductor on CPU" in findings["C++ compiler"].means
