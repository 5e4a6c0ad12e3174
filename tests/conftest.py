"""Gold files: what a test wrote once, was looked at, and must stay so. ``make update-gold`` writes them anew."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import autotune

_GOLD = Path(__file__).parent / "gold"

# What may change without anybody having to look: our own version; and in pages the styles, the scripts and their
# hashes, which have tests of their own.
_SCRUBBED = (
    (re.compile(rf"(?<![\w.]){re.escape(autotune.__version__)}(?![\w.])"), "<version>"),
    (re.compile(r"(?<=<style>).*?(?=</style>)", re.DOTALL), "<styles>"),
    (re.compile(r"(<script[^>]*>).*?(?=</script>)", re.DOTALL), r"\1<script>"),
    (re.compile(r"'sha256-[A-Za-z0-9+/=]+'"), "'sha256-<hash>'"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-gold``."""
    parser.addoption("--update-gold", action="store_true", help="write the gold files anew instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    """Heed Ctrl-C: where tests run in the background a shell has it ignored, and every process they start would too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def gold(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """``gold(name, text)`` compares the scrubbed text with ``tests/gold/<name>``."""

    def check(name: str, text: str) -> None:
        for pattern, replacement in _SCRUBBED:
            text = pattern.sub(replacement, text)
        path = _GOLD / name
        if request.config.getoption("--update-gold"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path} is not there; `make update-gold` writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; if that is meant: `make update-gold`"

    return check
