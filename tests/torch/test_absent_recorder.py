"""What is recorded of a script on a card that is not there."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from autotune.worker.absent.recorder import AllocationRecorder


def test_storages_that_go_together_stand_in_the_order_of_their_numbers() -> None:
    """Guards traces of two batch sizes: Python frees a set in the order of addresses, another one in each process."""
    recorder = AllocationRecorder()
    for kind, number in (("f", 3), ("f", 1), ("a", 4), ("f", 2), ("f", 0)):
        recorder._add(kind, number)
    trace = recorder.trace()
    assert trace.kinds == "ffaff"
    assert trace.numbers == (1, 3, 4, 0, 2)


def test_operators_that_cuda_has_a_kernel_for_are_recorded_whole() -> None:
    """Guards SiLU and RMSNorm: a torch for CPUs takes their backward apart, into results that a GPU never has."""
    counts = _run(
        """
        image = torch.ones(8, 8, device="cuda", requires_grad=True)
        for function in (F.silu, F.mish, lambda one: F.rms_norm(one, (8,))):
            result = function(image)
            gradient = torch.ones_like(result)
            before = len(recorder.trace().storage_bytes)
            result.backward(gradient)
            print(len(recorder.trace().storage_bytes) - before)
            image.grad = None
        """
    )
    assert counts.split() == ["1", "1", "1"]


def test_memory_is_of_the_stream_that_is_current() -> None:
    """Guards loaders that prefetch in a stream of their own, which torch's allocator keeps blocks apart for."""
    events = _run(
        """
        stream = torch.cuda.Stream(device="cuda:0")
        with torch.cuda.stream(stream):
            assert torch.cuda.current_stream(device="cuda:0") is stream
            one = torch.ones(8, device="cuda")
            stream.wait_stream(torch.cuda.default_stream())
        two = torch.ones(8, device="cuda")
        torch.cuda.set_stream(stream)
        trace = recorder.trace()
        print(trace.kinds, [trace.numbers[place] > 0 for place, kind in enumerate(trace.kinds) if kind == "s"])
        """
    )
    assert events.strip() == "sasas [True, False, True]"


def test_parameters_without_values_are_not_drawn_until_they_are_within_bounds() -> None:
    """Guards models of torchvision and transformers: torch draws truncated values in a loop until a test says yes."""
    printed = _run(
        """
        weight = torch.nn.Parameter(torch.empty(8, 8))
        print(torch.nn.init.trunc_normal_(weight, std=0.02) is weight)
        """
    )
    assert printed.strip() == "True"


def test_a_loop_that_waits_for_a_value_is_refused() -> None:
    refused = _run(
        """
        loss = torch.ones((), device="cuda")
        try:
            while loss.item() > 0:
                pass
        except RuntimeError as error:
            print(type(error).__name__, error)
        """
    )
    assert refused.startswith("NeedsValuesError a loop goes on until the values of tensors end it, at ")


def _run(script: str) -> str:
    """Run lines on a card that is not there, in a process of their own; return what they print."""
    start = """
        import torch, torch.nn.functional as F
        from autotune.records.cards import CARDS
        from autotune.worker.absent.pretence import pretend
        from autotune.worker.absent.recorder import AllocationRecorder
        recorder = AllocationRecorder()
        pretend(CARDS["a100-40gb"], recorder, print)
    """
    lines = textwrap.dedent(start) + textwrap.dedent(script)
    ended = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
