"""What a model prints, logs and warns of: it appears as without the engine, and breaks no graph."""

from __future__ import annotations

import builtins
import functools
import logging
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.fakes.planned import Planned, clean_torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning"),
    pytest.mark.filterwarnings("default:heard of:UserWarning"),
]
LOGGER = logging.getLogger("tests.messages")


@pytest.fixture(autouse=True)
def _clean_torch() -> Iterator[None]:
    with clean_torch():
        yield


class Inner(nn.Module):
    """A function that Dynamo inlines, whose messages its own option loses."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.up(x))
        print("largest", hidden.detach().max(), end=".\n", flush=True)  # noqa: T201
        LOGGER.info("of %d rows", 3)
        if LOGGER.isEnabledFor(logging.DEBUG):
            LOGGER.debug(f"sum {hidden.detach().sum()}")  # noqa: G004
        LOGGER.warning_once("only once")  # type: ignore[attr-defined]
        return self.down(hidden)


class Talkative(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("heard of", stacklevel=2)
        return self.inner(x) * self.inner(x + 1)


def model() -> Planned:
    return Planned(Talkative, lambda: (torch.arange(24.0).view(3, 8) / 24,))


@pytest.fixture(autouse=True)
def _once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A logger's method as transformers adds it."""

    @functools.cache
    def warning_once(logger: logging.Logger, message: str) -> None:
        logger.warning(message)

    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)


def test_messages_appear_as_without_the_engine_and_break_no_graph(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER.name)
    planned = model()

    def heard() -> tuple[str, list[str]]:
        lines = [record.getMessage() for record in caplog.records if record.name == LOGGER.name]
        caplog.clear()
        return capsys.readouterr().out, lines

    plain = planned.plain()
    expected_output, expected_lines = heard()
    logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
    assert expected_output.count("largest tensor(") == 2
    assert expected_lines.count("only once") == 1
    with pytest.warns(UserWarning, match="heard of"):
        assert planned.step() == plain
    assert len(planned.engine.graphs) == 1
    assert heard() == (expected_output, expected_lines)
    assert planned.step("tanh+:1:-1") == plain
    assert heard() == (expected_output, [line for line in expected_lines if line != "only once"])


def test_a_tensor_with_a_history_is_printed_and_its_gradient_is_the_same_bit_by_bit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Printing(Inner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.up(x))
            print(hidden.sum())  # noqa: T201
            return self.down(hidden)

    planned = Planned(Printing, lambda: (torch.ones(3, 8),))
    plain = planned.plain()
    shown = capsys.readouterr().out
    assert planned.step() == plain
    assert len(planned.engine.graphs) == 1
    # The graph is one function: whose gradient it is, it does not say.
    assert shown.replace(", grad_fn=<SumBackward0>", "") == capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_message_that_cannot_be_put_off_appears_all_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    class Odd(Inner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.up(x))
            print("shape", {"of": hidden.shape})  # noqa: T201
            return self.down(hidden)

    planned = Planned(Odd, lambda: (torch.ones(3, 8),))
    plain = planned.plain()
    shown = capsys.readouterr().out
    assert planned.step() == plain
    assert capsys.readouterr().out == shown


def test_a_message_in_a_part_that_the_script_checkpoints_appears(capsys: pytest.CaptureFixture[str]) -> None:
    class Checkpointed(Inner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            def part(x: torch.Tensor) -> torch.Tensor:
                print("in a part")  # noqa: T201
                return torch.tanh(self.up(x))

            return self.down(checkpoint(part, x, use_reentrant=False))

    planned = Planned(Checkpointed, lambda: (torch.ones(3, 8),))
    plain = planned.plain()
    capsys.readouterr()
    assert planned.step() == plain
    assert "in a part" in capsys.readouterr().out


def test_a_print_that_the_script_replaced_is_put_off_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As scripts do that write on the first rank only, and Ray, which moves its progress bars away first."""
    plain_print = builtins.print

    def first_rank_only(*args: object, force: bool = False, **kwargs: object) -> None:
        if force:
            plain_print("rank 0:", *args, **kwargs)  # type: ignore[call-overload]

    class Printing(Inner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden = torch.tanh(self.up(x))
            print("not written")  # noqa: T201
            print("sum", hidden.sum().detach(), force=True)  # type: ignore[call-overload]  # noqa: T201
            return self.down(hidden)

    monkeypatch.setattr(builtins, "print", first_rank_only)
    planned = Planned(Printing, lambda: (torch.ones(3, 8),))
    plain = planned.plain()
    shown = capsys.readouterr().out
    assert shown.startswith("rank 0: sum tensor(")
    assert planned.step() == plain
    assert len(planned.engine.graphs) == 1
    assert capsys.readouterr().out == shown


def test_messages_are_put_off_in_every_thread_that_compiles() -> None:
    """Torch's settings are a thread's own, so what one thread has set is not set in the next one."""

    class Printing(Inner):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("here")  # noqa: T201
            return super().forward(x)

    def graphs() -> int:
        planned = Planned(Printing, lambda: (torch.ones(3, 8),))
        planned.step()
        return len(planned.engine.graphs)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(graphs).result() == 1
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(graphs).result() == 1
