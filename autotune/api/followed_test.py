"""A test whose training is followed by the sizes of its tensors, and held against a limit: the mark ``peak_memory``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ..errors import AutotuneError, DiscoveryError, InterruptionError, UsageError
from ..records.codec import from_json
from ..records.explanation import Explanation
from ..records.printable import shell_line
from ..records.run import FOLLOWED_TEST
from ..records.units import format_bytes, parse_bytes
from ..report.explanation import explanation_sentences
from .calling import call_command
from .source import is_hosted

_MARK = "peak_memory"
_EXAMPLE = f'as in @pytest.mark.{_MARK}("24GiB", card="a100-40g")'
# Names the file for the reason why the test was skipped, for the pytest that is followed.
_SKIPPED = "AUTOTUNE_TEST_SKIPPED"


def prepare(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each test with the mark followed, in a pytest of its own; in this other one, leave all other tests out."""
    name = os.environ.get(FOLLOWED_TEST)
    if not is_hosted():
        for item in items:
            if item.get_closest_marker(_MARK) is not None:
                _Followed(item).take_over()
    elif name is not None:
        others = [item for item in items if item.nodeid != name]
        if len(others) == len(items):
            raise pytest.UsageError(f"the settings of this project leave {name} out, and the mark {_MARK} runs it")
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item.nodeid == name]
        config.pluginmanager.register(_Telling())


class _Telling:
    """Tells the pytest that follows a test whether the test was skipped."""

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the reason down."""
        if report.skipped and isinstance(report.longrepr, tuple):
            Path(os.environ[_SKIPPED]).write_text(str(report.longrepr[-1]), encoding="utf-8")


class _Followed:
    """A test with the mark. It keeps its item, so that hooks find what they look for, but no fixture is made here."""

    def __init__(self, item: Any) -> None:
        self._item = item
        self._tell = item.repr_failure

    def take_over(self) -> None:
        """Have the item run the other pytest in place of the test."""
        item = self._item
        item.setup = item.teardown = lambda: None
        item.runtest, item.repr_failure = self._run, self._failure

    def _run(self) -> None:
        limit_bytes, card = _read_mark(self._item.get_closest_marker(_MARK))
        with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
            skipped = Path(folder, "skipped")
            try:
                explained = self._explain(card, folder, {FOLLOWED_TEST: self._item.nodeid, _SKIPPED: str(skipped)})
            except InterruptionError as error:
                raise KeyboardInterrupt from error
            except AutotuneError:
                if not skipped.exists():
                    raise
            if skipped.exists():
                reason = skipped.read_text(encoding="utf-8").removeprefix("Skipped: ")
                pytest.skip(f"the pytest that is followed skips it: {reason}")
        self._item.user_properties.append(("autotune_peak_bytes", explained.peak_bytes))
        if not any(one.kind == "parameters" for one in explained.held):
            raise DiscoveryError(
                "at the peak no parameter is on the GPU", hint="move the model to CUDA in the test, as in model.cuda()"
            )
        if explained.peak_bytes > limit_bytes:
            self._fail(explained, limit_bytes)

    def _explain(self, card: str, folder: str, variables: dict[str, str]) -> Explanation:
        # What the test writes stays: other tests may write to the same files meanwhile.
        words = ["--leave-files", *(["--for", card] if card else []), "-m", "pytest", "--", *self._arguments(folder)]
        document = call_command(
            "explain",
            words,
            if_silent="run the test again: the memory of this machine may have been short",
            variables=variables,
            ends_at_once=True,
        )
        explained: Explanation = from_json(Explanation, document, where="autotune explain --json")
        return explained

    def _failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
        error = excinfo.value
        if not isinstance(error, AutotuneError):
            return self._tell(excinfo)
        told = [str(error), error.detail, f"next: {error.hint}" if error.hint else ""]
        if not isinstance(error, UsageError):
            told.append(f"Under the mark {_MARK} no value is computed: leave out what asserts one.")
        return "\n".join(filter(None, told))

    def _arguments(self, folder: str) -> Iterator[str]:
        """List what the other pytest is called with: it reads the same settings, and runs this test alone."""
        config = self._item.config
        yield f"--rootdir={config.rootpath}"
        if config.inipath is not None:
            yield from ("-c", str(config.inipath))
        for plugin in dict.fromkeys([*config.option.plugins, "pytest_autotune"]):
            yield from ("-p", plugin)
        # What this pytest writes is left alone.
        yield from (f"--basetemp={folder}/files", "--junit-xml=", "--log-file=")
        # The project's own options may leave this test out, or have it run elsewhere.
        yield from ("-m", "", "-k", "", "--runxfail")
        for plugin, option in (("xdist", "-n0"), ("pytest_cov", "--no-cov")):
            if config.pluginmanager.hasplugin(plugin):
                yield option
        yield self._named(str(self._item.path))

    def _fail(self, explained: Explanation, limit_bytes: int) -> NoReturn:
        limit, card, config = format_bytes(limit_bytes), explained.card.name, self._item.config
        chosen = [word for option in ("-m", "-k") for word in (option, "") if config.getoption(option)]
        test = self._named(os.path.relpath(self._item.path, config.invocation_params.dir))
        command = ("autotune", "explain", "--for", card, "--changes", "-m", "pytest", "--", *chosen, test)
        told = [f"Over the limit of {limit} on {card}.", *explanation_sentences(explained)]
        pytest.fail("\n".join([*told, f"To see what would lower it: {shell_line(command)}"]), pytrace=False)

    def _named(self, file: str) -> str:
        return f"{file}::{self._item.nodeid.partition('::')[2]}"


def _read_mark(mark: pytest.Mark) -> tuple[int, str]:
    """Return the limit in bytes, and the name of the card."""

    def read(limit: str | int, card: str = "") -> tuple[int, str]:
        size = parse_bytes(limit) if isinstance(limit, str) else limit
        if type(size) is not int or size <= 0:
            raise UsageError(f"the limit of the mark {_MARK} is a size, not {limit!r}", hint=_EXAMPLE)
        return size, card

    try:
        return read(*mark.args, **mark.kwargs)
    except TypeError as error:
        told = str(error).partition("()")[2].strip()
        raise UsageError(f"the mark {_MARK} {told}", hint=_EXAMPLE) from None
