"""The mark ``peak_memory``: what is asked of ``autotune explain``, what its answer makes of a test, and bad marks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.api import followed_test
from autotune.errors import DiscoveryError, InterruptionError
from autotune.records.allocations import Place
from autotune.records.cards import CARDS
from autotune.records.codec import to_json
from autotune.records.explanation import Explanation, HeldTensor, Moment

pytest_plugins = ["pytester"]

MARKED = """
import pytest

@pytest.mark.peak_memory({mark})
@pytest.mark.parametrize("number", [1])
def test_training(number):
    assert False, "no body of such a test runs here"
"""


def explanation(peak_bytes: int = 2, *, on_gpu: bool = True) -> Explanation:
    made = Moment(1, "forward", Place("head", "test_it.py:5", "test_it.py:5", "mm", code="head(x)"))
    held = [HeldTensor("saved activations", peak_bytes - 1, (peak_bytes - 1,), "int8", "", made, None)]
    held += [HeldTensor("parameters", 1, (1,), "int8", "weight", made, None)] * on_gpu
    return Explanation("pytest", CARDS["a100-40gb"], 8, peak_bytes, peak_bytes, made, tuple(held), 0, ())


Told = Callable[..., list[list[str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """``told(answer)`` is what ``autotune explain`` will answer; gives the words that it gets."""

    def tell(answer: Any, skipped: str = "") -> list[list[str]]:
        calls: list[list[str]] = []

        def call(name: str, words: list[str], *, variables: dict[str, str], if_silent: str, ends_at_once: bool) -> Any:
            assert ends_at_once
            calls.append([name, *words])
            if skipped:
                Path(variables["AUTOTUNE_TEST_SKIPPED"]).write_text(f"Skipped: {skipped}")
            if isinstance(answer, Exception):
                raise answer
            return to_json(answer)

        monkeypatch.setattr(followed_test, "call_command", call)
        return calls

    return tell


def run_marked(pytester: pytest.Pytester, mark: str, *options: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=MARKED.format(mark=mark))
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", *options)


@pytest.mark.parametrize("limit", ['"10MiB"', "10 * 2**20", 'limit="10MiB"'])
def test_a_peak_at_the_limit_passes(limit: str, pytester: pytest.Pytester, told: Told) -> None:
    calls = told(explanation(peak_bytes=10 * 2**20))
    run_marked(pytester, f"{limit}, card='t4-16gb'").assert_outcomes(passed=1)
    (words,) = calls
    test = f"{pytester.path / 'test_it.py'}::test_training[1]"
    assert words[:7] == ["explain", "--leave-files", "--for", "t4-16gb", "-m", "pytest", "--"]
    assert words[-1] == test
    assert f"--rootdir={pytester.path}" in words


def test_a_peak_over_the_limit_fails_with_what_holds_it(pytester: pytest.Pytester, told: Told) -> None:
    calls = told(explanation(peak_bytes=10 * 2**20 + 1))
    result = run_marked(pytester, '"10MiB"')
    result.assert_outcomes(failed=1)
    assert "--for" not in calls[0]
    result.stdout.fnmatch_lines(
        [
            "Over the limit of 10 MiB on a100-40gb.",
            "The step at batch size 8 holds 10 MiB of tensors at its peak, *",
            "To see *: autotune explain --for a100-40gb --changes -m pytest -- 'test_it.py::test_training[[]1[]]'",
        ]
    )
    assert "AssertionError" not in result.stdout.str()


def test_a_test_that_cannot_be_followed_fails_with_the_reason(pytester: pytest.Pytester, told: Told) -> None:
    told(DiscoveryError("no training step ran", hint="train it", detail="its last line"))
    result = run_marked(pytester, '"10MiB"')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["no training step ran", "its last line", "next: train it", "Under the mark *"])


@pytest.mark.parametrize(
    ("mark", "cause"),
    [
        ("", "the mark peak_memory missing 1 required positional argument: 'limit'"),
        ('"1GiB", crd=1', "the mark peak_memory got an unexpected keyword argument 'crd'"),
        ('"much"', "not a size in bytes: 'much'"),
        ("1.5", "the limit of the mark peak_memory is a size, not 1.5"),
        ("-5", "the limit of the mark peak_memory is a size, not -5"),
        ("True", "the limit of the mark peak_memory is a size, not True"),
    ],
)
def test_a_wrong_mark_is_refused(mark: str, cause: str, pytester: pytest.Pytester, told: Told) -> None:
    calls = told(explanation())
    result = run_marked(pytester, mark)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([cause, "next: *"])
    assert calls == []


def test_settings_of_the_project_reach_the_other_pytest_but_neither_its_choice_of_tests_nor_its_workers(
    pytester: pytest.Pytester, told: Told
) -> None:
    calls = told(explanation())
    ini = pytester.makeini("[pytest]\nmarkers = slow: takes long\naddopts = -m 'not slow'")
    pytester.makepyfile(test_it=MARKED.format(mark="'1GiB'") + "test_training = pytest.mark.slow(test_training)\n")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-m", "slow").assert_outcomes(passed=1)
    (words,) = calls
    given = words[words.index("--") + 1 :]
    assert given[1:3] == ["-c", str(ini)]
    assert given[given.index("-m") :][:4] == ["-m", "", "-k", ""]
    assert ["-p", "pytest_autotune"] in [given[place : place + 2] for place in range(len(given))]
    assert "-n0" in given


@pytest.mark.parametrize(
    ("decorator", "outcome"),
    [
        ("skip(reason='no')", {"skipped": 1}),
        ("skipif('number_of_gpus == 0', reason='no')", {"skipped": 1}),
        ("xfail(reason='too much')", {"xfailed": 1}),
        ("usefixtures('broken')", {"passed": 1}),
    ],
)
def test_other_marks_hold_and_no_fixture_is_made(
    decorator: str, outcome: dict[str, int], pytester: pytest.Pytester, told: Told
) -> None:
    told(explanation(peak_bytes=2**30))
    limit = "1MiB" if "xfail" in decorator else "1GiB"
    pytester.makepyfile(
        f"""
        import pytest

        number_of_gpus = 0

        @pytest.fixture
        def broken():
            raise OSError("no GPU here")

        @pytest.mark.{decorator}
        @pytest.mark.peak_memory("{limit}")
        def test_training():
            pass
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(**outcome)


def test_marks_of_classes_count_and_other_tests_run_as_ever(pytester: pytest.Pytester, told: Told) -> None:
    calls = told(explanation())
    pytester.makepyfile(
        """
        import unittest

        import pytest

        @pytest.mark.peak_memory("1GiB")
        class TestTraining:
            def test_one(self):
                assert False

        @pytest.mark.peak_memory("1GiB")
        class Others(unittest.TestCase):
            def test_two(self):
                assert False

        def test_three():
            assert False
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2, failed=1)
    assert [one[-1].partition("::")[2] for one in calls] == ["TestTraining::test_one", "Others::test_two"]


def test_a_mark_that_another_plugin_adds_last_counts(pytester: pytest.Pytester, told: Told) -> None:
    calls = told(explanation())
    pytester.makeconftest(
        """
        import pytest

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(items):
            for item in items:
                item.add_marker(pytest.mark.peak_memory("1GiB"))
        """
    )
    pytester.makepyfile("def test_training(): assert False")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)
    assert len(calls) == 1


def test_hooks_find_the_test_s_function_and_fixtures(pytester: pytest.Pytester, told: Told) -> None:
    told(explanation(2**31))
    pytester.makeconftest(
        """
        import pytest

        def pytest_runtest_setup(item):
            assert "tmp_path" in item.fixturenames and item.function and item.cls is None

        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(item, call):
            report = yield
            report.sections.append(("fixtures", repr(item.funcargs)))
            return report
        """
    )
    pytester.makepyfile(
        """
        import hypothesis
        import pytest

        @pytest.mark.peak_memory("1GiB")
        def test_training(tmp_path):
            pass
        """
    )
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["Over the limit of 1 GiB on a100-40gb."])


def test_a_test_that_is_skipped_there_is_skipped(pytester: pytest.Pytester, told: Told) -> None:
    for answer in (explanation(), DiscoveryError("no training step ran", hint="train it")):
        told(answer, skipped="it needs two GPUs")
        result = run_marked(pytester, '"10MiB"', "-rs")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED * the pytest that is followed skips it: it needs two GPUs"])


def test_a_model_that_is_not_on_the_gpu_is_no_success(pytester: pytest.Pytester, told: Told) -> None:
    told(explanation(on_gpu=False))
    result = run_marked(pytester, '"10MiB"')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["at the peak no parameter is on the GPU", "next: move the model to CUDA*"])


def test_ctrl_c_ends_the_session(pytester: pytest.Pytester, told: Told) -> None:
    told(InterruptionError("stopped", hint="again"))
    pytester.makepyfile(test_it=MARKED.format(mark='"10MiB"') + "def test_later(): assert False")
    assert pytester.inline_run("-p", "no:cacheprovider", no_reraise_ctrlc=True).ret == pytest.ExitCode.INTERRUPTED


def test_a_project_with_a_module_of_the_same_name_hears_so_for_its_marked_tests_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "autotune.api", None)
    pytester.makepyfile(test_it=MARKED.format(mark="'1GiB'"), test_other="def test_other(): pass")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["autotune cannot be imported, as another module has its name: *"])


def test_the_pytest_that_is_followed_runs_the_one_test(
    pytester: pytest.Pytester, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    told(explanation())
    monkeypatch.setenv("AUTOTUNE_RUN", str(pytester.path))
    monkeypatch.setenv("AUTOTUNE_TEST_SKIPPED", str(pytester.path / "skipped"))
    pytester.makeini("[pytest]\naddopts = test_it.py")
    pytester.makepyfile(
        test_it="""
        import pytest

        @pytest.mark.peak_memory("1GiB")
        def test_one():
            pytest.skip("not here")

        @pytest.mark.peak_memory("1GiB")
        def test_two():
            assert False
        """
    )
    monkeypatch.setenv("AUTOTUNE_TEST", "test_it.py::test_one")
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(skipped=1, deselected=1)
    assert (pytester.path / "skipped").read_text() == "Skipped: not here"
    monkeypatch.setenv("AUTOTUNE_TEST", "test_it.py::test_three")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*settings of this project leave test_it.py::test_three out*"])


def test_in_a_process_that_is_followed_the_test_itself_runs(
    pytester: pytest.Pytester, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = told(explanation())
    monkeypatch.setenv("AUTOTUNE_RUN", str(pytester.path))
    result = run_marked(pytester, '"1GiB"')
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: no body of such a test runs here*"])
    assert calls == []


def test_the_peak_is_in_the_report(pytester: pytest.Pytester, told: Told) -> None:
    told(explanation(peak_bytes=12345))
    run_marked(pytester, '"1GiB"', "--junit-xml=report.xml").assert_outcomes(passed=1)
    assert '<property name="autotune_peak_bytes" value="12345"' in (pytester.path / "report.xml").read_text()
