"""Changes that are made in a script that is followed, against the same changes in its lines."""

from __future__ import annotations

import ast

import pytest

from .test_absent_recorder import run_on_absent_card

# Each case is a loss of hidden rows, as scripts write it, and the same in chunks.
CASES = """
import functools
from torch import nn
from torch.utils.checkpoint import checkpoint
from autotune.records.allocations import AllocationTrace

torch.manual_seed(0)
WIDTH, WORDS = 16, 4096
inner = nn.Linear(WIDTH, 4 * WIDTH).cuda()
outer = nn.Linear(4 * WIDTH, WIDTH).cuda()
head, other = (nn.Linear(WIDTH, WORDS, bias=False).cuda() for _ in range(2))
weights = torch.rand(WORDS, device="cuda")
kept = []

def body(batch, length):
    return outer(inner(torch.randn(batch, length, WIDTH, device="cuda", requires_grad=True)))

def targets(batch, length):
    return torch.randint(0, WORDS, (batch, length), device="cuda")

def in_chunks(layer, rows, wanted, **options):
    part = lambda h, t: F.cross_entropy(layer(h), t, reduction="sum", **options)
    pairs = zip(rows.chunk(8), wanted.flatten().chunk(8))
    return sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs) / wanted.numel()

def plain(by_hand, batch=4, length=128, **options):
    hidden, wanted = body(batch, length), targets(batch, length)
    if by_hand:
        return in_chunks(head, hidden.flatten(0, 1), wanted, **options)
    logits = head(hidden)
    kept[:] = [logits]  # as a model's output is
    return F.cross_entropy(logits.view(-1, WORDS), wanted.view(-1), **options)

def under_autocast(by_hand):
    # The logits that are kept have a graph, and that the weights in bfloat16.
    with torch.autocast("cuda", torch.bfloat16):
        return plain(by_hand)

def shifted(by_hand):
    hidden, wanted = body(4, 129), targets(4, 129)
    if by_hand:
        return in_chunks(head, hidden[:, :-1].flatten(0, 1), wanted[:, 1:])
    logits = head(hidden)
    return F.cross_entropy(logits[:, :-1].reshape(-1, WORDS), wanted[:, 1:].reshape(-1))

def two_heads(by_hand, crossed=False, length=140):
    hidden, wanted = body(4, length), targets(4, length)
    if by_hand:
        return sum(in_chunks(one, hidden.flatten(0, 1), wanted) for one in (head, other))
    both = [one(hidden).view(-1, WORDS) for one in (head, other)]
    return sum(F.cross_entropy(one, wanted.view(-1)) for one in (both[::-1] if crossed else both))

cases = [
    plain,
    functools.partial(plain, length=100),  # a shorter batch than the one before
    functools.partial(plain, weight=weights, label_smoothing=0.1, ignore_index=3),
    under_autocast,
    shifted,
    two_heads,
    functools.partial(two_heads, crossed=True),
    functools.partial(two_heads, length=100),
]

def peaks(by_hand, change=None):
    for case in cases:
        recorder.begin("start")
        loss = case(by_hand)
        if change is not None:
            change.backward_begins()
        loss.backward()
        del loss
        kept.clear()
        for one in (inner, outer, head, other):
            one.zero_grad()
    trace, found, level = recorder.trace(), [], 0
    for kind, number in zip(trace.kinds, trace.numbers):
        if kind == "p":
            found.append(level)
        level += {"a": 1, "f": -1}.get(kind, 0) * (trace.storage_bytes[number] if kind in "af" else 0)
        if found:
            found[-1] = max(found[-1], level)
    return found
"""


def test_a_loss_in_chunks_takes_what_it_takes_by_hand() -> None:
    by_hand = run_on_absent_card(CASES.replace("\n", "\n        ") + "\n        print(peaks(True))")
    changed = run_on_absent_card(
        CASES.replace("\n", "\n        ")
        + """
        from autotune.worker.absent.changes import make_change
        change = make_change("chunked loss", recorder)
        print([*peaks(False, change), change.problem()])
        """
    )
    *told, problem = ast.literal_eval(changed)
    assert problem == ""
    assert told == pytest.approx(ast.literal_eval(by_hand), rel=0.002)


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        ("F.cross_entropy(head(rows).tanh(), wanted)", "Tanh lies between the last layer and the loss"),
        (
            "F.cross_entropy(head(rows).view(-1, WORDS // 2), wanted.repeat(2) % 2)",
            "the loss does not take the rows of the last layer's output as they are",
        ),
        (
            "F.cross_entropy(head(rows).view(4, 128, WORDS).transpose(1, 2), wanted.view(4, 128))",
            "the loss does not take the rows of the last layer's output as they are",
        ),
        (
            "F.cross_entropy(F.linear(head(rows), head.weight.T), wanted % WIDTH)",
            "no cross entropy is computed from the largest output",
        ),
        ("F.cross_entropy(logits := head(rows), wanted) + logits.sum()", "the logits are read once more, by sum at "),
        (
            "F.cross_entropy((logits := head(rows))[:256], wanted[:256]) + F.cross_entropy(logits[256:], wanted[256:])",
            "the logits are read once more, by ",
        ),
    ],
)
def test_a_loss_that_is_not_chunked_comes_with_the_reason(loss: str, reason: str) -> None:
    told = run_on_absent_card(
        CASES.replace("\n", "\n        ")
        + f"""
        from autotune.worker.absent.changes import make_change
        change = make_change("chunked loss", recorder)
        rows, wanted = body(4, 128).flatten(0, 1), targets(4, 128).flatten()
        loss = {loss}
        change.backward_begins()
        loss.backward()
        print(change.problem())
        """
    )
    assert told.startswith(reason)


@pytest.mark.parametrize(
    ("freeing", "reason"),
    [
        ("optimizer.zero_grad()", ""),
        ("head.zero_grad(set_to_none=False)", ""),
        ("head.weight.grad = None", "the script frees its gradients otherwise than by zero_grad"),
    ],
)
def test_gradients_are_kept_unless_the_script_frees_them_by_itself(freeing: str, reason: str) -> None:
    told = run_on_absent_card(
        f"""
        from torch import nn
        from autotune.worker.absent.changes import make_change
        change = make_change("accumulation", recorder)
        head = nn.Linear(4, 4, bias=False).cuda()
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for _ in range(2):
            loss = head(torch.ones(2, 4, device="cuda")).sum()
            change.backward_begins()
            loss.backward()
            optimizer.step()
            {freeing}
        change.backward_begins()
        print(change.problem())
        """
    )
    assert told.strip() == reason
