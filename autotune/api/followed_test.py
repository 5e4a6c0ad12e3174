"""A test whose training is followed by the sizes of its tensors, and held against a limit: the mark ``peak_memory``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest

from ..errors import AutotuneError, UsageError
from ..records.codec import from_json
from ..records.explanation import Explanation
from ..records.printable import shell_line
from ..records.units import format_bytes, parse_bytes
from ..report.explanation import explanation_sentences
from .calling import call_command
from .source import is_hosted

_MARK = "peak_memory"
_EXAMPLE = f'as in @pytest.mark.{_MARK}("24GiB", card="a100-40g")'


def followed(item: pytest.Item) -> pytest.Item:
    """Return what stands in for a test with the mark; the test itself if it has none, or if it is followed already."""
    if is_hosted() or item.get_closest_marker(_MARK) is None:
        return item
    assert item.parent is not None, "only a session has none"
    return FollowedTest.from_parent(item.parent, name=item.name, test=item)


class FollowedTest(pytest.Item):
    """Has a test run by a pytest of its own, which ``autotune explain`` follows: no fixture is made here."""

    def __init__(self, *, test: pytest.Item, **others: Any) -> None:
        super().__init__(**others)
        self._test = test
        self.own_markers = list(test.own_markers)
        self.keywords.update(test.keywords)
        # Conditions of `skipif` that are text see the names of the test's module.
        self.obj: Any = getattr(test, "obj", None)

    def reportinfo(self) -> Any:
        """Return where the test stands."""
        return self._test.reportinfo()

    def runtest(self) -> None:
        """Follow the test, and fail if its tensors take more than the limit at the peak."""
        mark = self.get_closest_marker(_MARK)
        assert mark is not None
        limit_bytes, card = _read_mark(mark)
        words = ["--for", card] if card else []
        document = call_command(
            "explain",
            [*words, "-m", "pytest", "--", *self._arguments()],
            lambda _: None,
            if_silent="run the test again: the memory of this machine may have been short",
        )
        explained: Explanation = from_json(Explanation, document, where="autotune explain --json")
        self.user_properties.append(("autotune_peak_bytes", explained.peak_bytes))
        if explained.peak_bytes > limit_bytes:
            self._fail(explained, limit_bytes)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the sentences of an error of autotune; other errors as pytest shows them."""
        error = excinfo.value
        if not isinstance(error, AutotuneError):
            return super().repr_failure(excinfo, style)
        told = [str(error), error.detail, f"next: {error.hint}" if error.hint else ""]
        if not isinstance(error, UsageError):
            told.append(f"Under the mark {_MARK} no value is computed: leave out what asserts one.")
        return "\n".join(filter(None, told))

    def _arguments(self) -> Iterator[str]:
        """List what the other pytest is called with: it reads the same settings, and runs this test alone."""
        config = self.config
        yield f"--rootdir={config.rootpath}"
        if config.inipath is not None:
            yield from ("-c", str(config.inipath))
        # The project's own options may leave this test out, or have it run elsewhere.
        yield from ("-m", "", "-k", "", "--runxfail")
        for plugin, option in (("xdist", "-n0"), ("pytest_cov", "--no-cov")):
            if config.pluginmanager.hasplugin(plugin):
                yield option
        yield self._named(str(self.path))

    def _fail(self, explained: Explanation, limit_bytes: int) -> NoReturn:
        limit, card = format_bytes(limit_bytes), explained.card.name
        test = self._named(os.path.relpath(self.path, self.config.invocation_params.dir))
        command = shell_line(("autotune", "explain", "--for", card, "--changes", "-m", "pytest", "--", test))
        told = [f"Over the limit of {limit} on {card}.", *explanation_sentences(explained)]
        pytest.fail("\n".join([*told, f"To see what would lower it: {command}"]), pytrace=False)

    def _named(self, file: str) -> str:
        return f"{file}::{self.nodeid.partition('::')[2]}"


def _read_mark(mark: pytest.Mark) -> tuple[int, str]:
    """Return the limit in bytes, and the name of the card."""

    def read(limit: str | int, card: str = "") -> tuple[int, str]:
        if type(limit) not in (str, int):
            raise UsageError(f"the limit of the mark {_MARK} is a size, not {limit!r}", hint=_EXAMPLE)
        return (parse_bytes(limit) if isinstance(limit, str) else limit), card

    try:
        return read(*mark.args, **mark.kwargs)
    except TypeError as error:
        told = str(error).partition("()")[2].strip()
        raise UsageError(f"the mark {_MARK} {told}", hint=_EXAMPLE) from None
