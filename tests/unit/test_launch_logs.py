"""The last words of a run, as a user should read them."""

from __future__ import annotations

from pathlib import Path

import autotune
from autotune.launch.logs import log_tail

PACKAGE = Path(autotune.__file__).parent


def test_the_last_lines_of_both_logs_errors_last(tmp_path):
    (tmp_path / "stdout.log").write_text("epoch 1\nepoch 2\n")
    (tmp_path / "stderr.log").write_text("warning\n")
    assert log_tail(tmp_path) == ("epoch 1", "epoch 2", "warning")
    assert log_tail(tmp_path, lines=2) == ("epoch 2", "warning")


def test_no_log_has_no_lines(tmp_path):
    assert log_tail(tmp_path) == ()


def test_colours_and_redrawn_progress_bars_are_left_out(tmp_path):
    (tmp_path / "stdout.log").write_text("\x1b[31mred\x1b[0m\n 10%\r 50%\r100%\n")
    assert log_tail(tmp_path) == ("red", "100%")


def test_autotune_s_own_frames_are_left_out_of_tracebacks(tmp_path):
    (tmp_path / "stderr.log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/ada/train.py", line 3, in <module>\n'
        "    loss.backward()\n"
        f'  File "{PACKAGE}/files/backup.py", line 122, in heard\n'
        "    def heard(self, event, arguments):\n"
        f'  File "{PACKAGE}/worker/hooks/steps.py", line 92, in backward\n'
        "    result = original(*arguments, **keywords)\n"
        "             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        '  File "/venv/torch/autograd/__init__.py", line 395, in backward\n'
        "    _engine_run_backward(\n"
        "RuntimeError: odd\n"
    )
    assert log_tail(tmp_path) == (
        "Traceback (most recent call last):",
        '  File "/home/ada/train.py", line 3, in <module>',
        "    loss.backward()",
        '  File "/venv/torch/autograd/__init__.py", line 395, in backward',
        "    _engine_run_backward(",
        "RuntimeError: odd",
    )


def test_the_worker_s_own_frames_are_left_out_of_stacks(tmp_path):
    (tmp_path / "stderr.log").write_text(
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/home/ada/train.py", line 18 in <module>\n'
        f'  File "{PACKAGE}/worker/script.py", line 39 in run_script\n'
        f'  File "{PACKAGE}/worker/__main__.py", line 49 in <module>\n'
    )
    assert log_tail(tmp_path)[1:] == ('  File "/home/ada/train.py", line 18 in <module>',)


def test_what_follows_the_stacks_of_a_crash_is_left_out(tmp_path):
    (tmp_path / "stderr.log").write_text(
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f (most recent call first):\n"
        '  File "/home/ada/train.py", line 18 in <module>\n\n'
        "Extension modules: numpy.core._multiarray_umath, torch._C (total: 2)\n"
    )
    assert log_tail(tmp_path)[-1] == '  File "/home/ada/train.py", line 18 in <module>'
