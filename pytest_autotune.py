"""The pytest plugin of autotune: the mark ``peak_memory``.

It stands beside the package: pytest imports it in every project, also in one that has a module ``autotune`` of its own.
"""

from __future__ import annotations

import pytest

_MARK = (
    "peak_memory(limit, card=None): while the test trains, its tensors on the GPU may take at most `limit`, as in "
    "'24GiB'. The test is followed by the sizes of its tensors, so no GPU is needed. `card` is the GPU, as in "
    "'a100-40g'."
)


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line("markers", _MARK)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests with the mark followed."""
    if any(item.get_closest_marker("peak_memory") for item in items):
        from autotune.api.followed_test import followed

        items[:] = map(followed, items)
