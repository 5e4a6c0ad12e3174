"""The pytest plugin of autotune: the mark ``peak_memory``.

It stands beside the package: pytest imports it in every project, also in one that has a module ``autotune`` of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Generator
from typing import Any

import pytest

_MARK = (
    "peak_memory(limit, card=None): while the test trains, its tensors on the GPU may take at most `limit`, as in "
    "'24GiB'. The test is followed by the sizes of its tensors, so no GPU is needed. `card` is the GPU, as in "
    "'a100-40g'."
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Have the tests with the mark followed, once other plugins have chosen and marked tests."""
    yield
    marked = [item for item in items if item.get_closest_marker("peak_memory")]
    if not marked:
        return
    try:
        from autotune.api import followed_test
    except ImportError as error:
        for item in marked:
            _cannot_run(item, f"autotune cannot be imported, as another module has its name: {error}")
        return
    followed_test.prepare(config, items)


def _cannot_run(item: Any, reason: str) -> None:
    item.setup = item.teardown = lambda: None
    item.runtest = functools.partial(pytest.fail, reason, pytrace=False)
