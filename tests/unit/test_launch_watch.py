"""Reading what a run writes while it writes it: results, progress, logs; and the deadlines."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import FormatError
from autotune.launch.logs import log_tail
from autotune.launch.watch import Deadlines, ResultsFile, read_progress
from autotune.records.codec import dumps
from autotune.records.outcome import Phase
from autotune.records.progress import Progress
from autotune.records.run import Ended


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_no_file_yet_is_no_lines(tmp_path: Path) -> None:
    assert ResultsFile(tmp_path / "results.jsonl").read() == ()


def test_lines_are_given_once_and_a_torn_one_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = Ended(1, 0, "größer"), Ended(2, 0, "second")
    text = (dumps(first) + "\n" + dumps(second) + "\n").encode()
    results = ResultsFile(path)

    seen = []
    for byte in text:
        _append(path, bytes([byte]))
        seen.append(results.read())

    assert [lines for lines in seen if lines] == [(first,), (second,)]
    assert results.read() == ()


def test_a_wrong_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = ResultsFile(path)
    _append(path, (dumps(Ended(1, 0, "")) + "\n").encode())
    results.read()
    _append(path, b'{"kind":"unheard_of"}\n')

    with pytest.raises(FormatError, match=r"results\.jsonl line 2"):
        results.read()


def _write(folder: Path, process: int, *, phase: Phase = "start", steps: int = 0) -> Progress:
    progress = Progress(phase, 0, steps, 0, 1, process, 0.0)
    (folder / f"progress-{process}").write_bytes(progress.to_bytes())
    return progress


def test_a_progress_file_that_is_not_written_yet_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "progress-1").touch()
    written = _write(tmp_path, 2)

    assert read_progress(tmp_path) == (written,)


def test_a_process_that_does_not_train_counts_only_until_others_do(tmp_path: Path) -> None:
    parent = _write(tmp_path, 1)
    assert read_progress(tmp_path) == (parent,)

    rank = _write(tmp_path, 2, phase="forward")
    assert read_progress(tmp_path) == (rank,)


def _deadlines() -> Deadlines:
    return Deadlines(start_timeout_s=10.0, trial_timeout_s=3.0, now_s=100.0)


def test_the_start_timeout_runs_until_the_first_step() -> None:
    deadlines = _deadlines()
    deadlines.advance(trial=0, stepped=False, now_s=109.0)

    assert deadlines.passed(110.0) is None
    assert deadlines.passed(110.1) == "start_timeout"


def test_the_trial_timeout_counts_from_the_first_step_and_anew_for_each_trial() -> None:
    deadlines = _deadlines()
    deadlines.advance(trial=0, stepped=True, now_s=109.0)
    deadlines.advance(trial=0, stepped=True, now_s=111.0)
    assert deadlines.passed(112.0) is None
    assert deadlines.passed(112.1) == "trial_timeout"

    deadlines.advance(trial=1, stepped=True, now_s=112.0)
    assert deadlines.passed(115.0) is None
    assert deadlines.passed(115.1) == "trial_timeout"


def test_the_log_tail_puts_standard_error_last_and_first_in_line_for_room(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("".join(f"out {i}\n" for i in range(9)))
    (tmp_path / "stderr.log").write_text("err 0\n\n  \nerr 1\n")

    assert log_tail(tmp_path, lines=4) == ("out 7", "out 8", "err 0", "err 1")
    assert log_tail(tmp_path, lines=1) == ("err 1",)


def test_the_log_tail_shows_what_a_terminal_would_show_last(tmp_path: Path) -> None:
    (tmp_path / "stderr.log").write_bytes(b"\x1b[31mred\x1b[0m\r\n 10%|#\r 20%|##\r 30%|###\nbad \xff byte\n")

    assert log_tail(tmp_path) == ("red", " 30%|###", "bad \N{REPLACEMENT CHARACTER} byte")


def test_the_log_tail_of_a_long_log_is_short(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("line\n" * 100_000)

    assert log_tail(tmp_path, lines=15) == ("line",) * 15


def test_a_run_without_logs_has_no_log_tail(tmp_path: Path) -> None:
    assert log_tail(tmp_path) == ()


def test_a_description_has_a_deadline_of_its_own_from_its_beginning_on() -> None:
    deadlines = Deadlines(start_timeout_s=5.0, trial_timeout_s=3.0, now_s=0.0)
    deadlines.advance(trial=(0, 0, False), stepped=True, now_s=1.0)
    deadlines.advance(trial=(1, 0, True), stepped=True, now_s=3.0, describing_s=50.0)
    assert deadlines.passed(52.0) is None
    assert deadlines.passed(54.0) == "describing_timeout"
    deadlines.advance(trial=(1, 0, True), stepped=True, now_s=52.0, describing_s=57.0)
    assert deadlines.passed(59.0) is None
    assert deadlines.passed(61.0) == "describing_timeout"
