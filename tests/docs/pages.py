"""The pages as tests read them: their links, and the command lines that they show."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = (README, *sorted(DOCS.rglob("*.md")))
# What people type from: every command there is run, or at least parsed.
FOR_USERS = (README, DOCS / "README.md", DOCS / "how-it-works.md", *sorted((DOCS / "guides").glob("*.md")))
# The files that command lines name.
FILES = {
    "train.py": "import torch\n",
    "base/train.py": "import torch\n",
    "training.log": (ROOT / "tests/fakes/ort_tables/plan_table_A_l0.txt").read_text(encoding="utf-8"),
    "mem_opt.json": '["gelu+:1:-1"]',
}

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Shown:
    """A command line on a page; ``is_line``: by itself in a block, as something to be typed."""

    page: Path
    text: str
    is_line: bool

    @property
    def words(self) -> list[str]:
        """What the shell makes of it."""
        return shlex.split(self.text, comments=True)

    def __str__(self) -> str:
        return f"{name(self.page)}: {self.text}"


def name(page: Path) -> str:
    """A page's path in the repository."""
    return str(page.relative_to(ROOT))


def shell_lines(page: Path) -> list[str]:
    """The lines of the page's blocks without a language, which are what one types."""
    blocks = (body for _, language, body in _FENCE.findall(page.read_text(encoding="utf-8")) if not language)
    return [line.strip() for block in blocks for line in block.splitlines() if line.strip()]


def shown(page: Path, program: str) -> list[Shown]:
    """The command lines of a program that a page shows, in blocks and within sentences."""
    return [*_in_blocks(page, program), *_in_sentences(page, program)]


def _in_blocks(page: Path, program: str) -> Iterator[Shown]:
    for line in shell_lines(page):
        if line.split()[0] == program:
            yield Shown(page, line, is_line=True)


def _in_sentences(page: Path, program: str) -> Iterator[Shown]:
    for code in _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
        words = code.split()
        if words[0] == program and len(words) > 1:
            yield Shown(page, " ".join(words), is_line=False)


def links(page: Path) -> list[str]:
    """The page's links that lead to other files, without what stands behind ``#``."""
    found = (link.partition("#") for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))))
    return [path for path, _, _ in found if path and "://" not in path]


def anchors(page: Path) -> list[tuple[Path, str]]:
    """The headings that the page's links lead to, each with the page that should have it."""
    found = (link.partition("#") for link in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link)
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in found if anchor]


def headings(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
