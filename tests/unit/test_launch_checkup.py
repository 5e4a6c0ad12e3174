"""What `autotune doctor` finds."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from autotune.launch.checkup import examine


def test_an_interpreter_with_torch_can_run_studies() -> None:
    findings = {finding.name: finding for finding in examine(sys.executable)}
    assert findings["Python"].good
    assert findings["torch"].good
    assert "Host memory" in findings
    assert all(finding.means.endswith(".") for finding in findings.values())


def test_an_interpreter_without_torch_is_named_as_what_is_missing(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    bare.chmod(bare.stat().st_mode | stat.S_IXUSR)
    findings = {finding.name: finding for finding in examine(str(bare))}
    assert findings["Python"].good
    assert not findings["torch"].good
    assert findings["torch"].required
    assert "ModuleNotFoundError" in findings["torch"].found


def test_an_interpreter_that_does_not_run_is_no_traceback(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in examine(str(tmp_path / "absent"))}
    assert not findings["Python"].good
    assert findings["Python"].required
