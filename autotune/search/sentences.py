"""The sentences that say a study's answer: one function for each way in which it may end."""

from __future__ import annotations

from collections.abc import Sequence

from ..records import ENGINES, Comparison, Configuration, OutOfMemory, Repeat, StudyRecord, Trial
from ..records.figures import figures_of, format_rate, peak_bytes, rounds_of
from ..records.units import format_bytes, format_share
from .aim import Aim
from .rounds import LEAST_GAIN, baseline_rates, is_slow

__all__ = [
    "baseline_does_not_fit",
    "no_win",
    "not_told",
    "nothing_better",
    "nothing_fits",
    "only_the_baseline",
    "winner",
]


def only_the_baseline(own: Trial, tried: Sequence[Trial]) -> str:
    """Nothing else tells anything yet."""
    rate, failed = format_rate(_rate(own)), len(tried) - 1
    if not failed:
        return f"Only your baseline was measured so far: {rate} samples/s."
    return f"Only your baseline could be measured, {rate} samples/s: the other {failed} trials all failed."


def winner(best: Comparison, aim: Aim) -> str:
    """A finalist won."""
    name = _name(best.configuration)
    if aim.seeks_memory:
        speed = f"{best.speedup:.3f}x its samples per second ({_spread(best)}, {aim.slowest:.3f}x is allowed)"
        return f"{name} needs {_less_memory(best)} than your baseline ({_peaks(best)}) at {speed}."
    return (
        f"{name} trains {best.speedup:.2f}x as many samples per second as your baseline ({_versus(best)}) "
        f"within {aim.limit_text()}."
    )


def not_told(configuration: Configuration, repeats: Sequence[Repeat], baseline: Configuration, aim: Aim) -> str:
    """The best so far has too few rounds."""
    name, rounds = _name(configuration), len(rounds_of(repeats, configuration))
    best = f"{name} needs the least memory so far" if aim.seeks_memory else f"{name} is the fastest so far"
    beside = len(baseline_rates(repeats, configuration, baseline))
    if not rounds:
        return f"{best}, but was not measured again beside your baseline yet."
    if rounds > beside:
        return f"{best}, but your baseline failed in {rounds - beside} of {rounds} rounds."
    return f"{best}, but {_rounds(rounds)} beside your baseline are too few to tell."


def no_win(
    told: Sequence[Comparison], failed: Sequence[Comparison], needed: float, repeats: Sequence[Repeat], aim: Aim
) -> str:
    """Finalists were measured again, and none is better than the baseline."""
    best = max(told or failed, key=aim.ratio)
    name, rounds = _name(best.configuration), _rounds(len(rounds_of(repeats, best.configuration)))
    if not told:
        better = "smaller" if aim.seeks_memory else "faster"
        return (
            f"Your baseline stays: {name} was {better} in the search, but in {rounds} beside it did not always train "
            f"within {aim.limit_text()}."
        )
    if aim.seeks_memory:
        return _no_less_memory(best, needed, rounds, aim)
    if best.speedup < LEAST_GAIN:
        return (
            f"Your baseline is already the best: {name}, measured again in {rounds} beside it, came to "
            f"{best.speedup:.3f}x ({_versus(best)})."
        )
    return (
        f"Your baseline stays: {name} came to {best.speedup:.2f}x in {rounds} beside it ({_versus(best)}), "
        f"but rounds vary so much here that anything under {max(needed, LEAST_GAIN):.2f}x may be chance."
    )


def nothing_better(own: Trial, tried: Sequence[Trial], aim: Aim) -> str:
    """No trial was better than the baseline's."""
    others = len({trial.configuration.key for trial in tried}) - 1
    if not others:
        return "Your baseline stays: there was nothing else to try."
    rate = format_rate(_rate(own))
    if aim.seeks_memory:
        least = format_rate(aim.slowest * _rate(own))
        return (
            f"Your baseline is already the best: of {others} other configurations tried, none needs less than its "
            f"{format_bytes(_peak(own) or 0)} by more than half a percent at {least} samples/s or more."
        )
    return (
        f"Your baseline is already the best: of {others} other configurations tried within {aim.limit_text()}, "
        f"none beats its {rate} samples/s by more than half a percent."
    )


def nothing_fits(record: StudyRecord, own: Trial | None, aim: Aim) -> str:
    """Nothing trains within the limit."""
    reliably = "reliably " if record.repeats else ""
    sentence = f"Nothing tried trains {reliably}within {aim.limit_text()}"
    seen = {peak: trial for trial in record.trials if (peak := _peak(trial)) is not None}
    if not seen:
        return f"{sentence}."
    least = min(seen)
    sentence += f"; the least seen was {format_bytes(least)}, of {_name(seen[least].configuration)}"
    if own is not None and own.measured and seen[least] is not own:
        fewer = _rate(own) - _rate(seen[least])
        cost = f"{format_rate(abs(fewer))} {'fewer' if fewer > 0 else 'more'} than your baseline"
        sentence += f", which trains {format_rate(_rate(seen[least]))} samples/s, {cost}"
    return f"{sentence}."


def baseline_does_not_fit(
    record: StudyRecord, own: Trial | None, best: Configuration, fastest_per_s: float, aim: Aim
) -> str:
    """Something fits, the baseline does not."""
    limit, peak = aim.limit_text(), None if own is None else _peak(own)
    if own is not None and peak is not None and peak > aim.limit_bytes:
        trouble = f"needs {format_bytes(peak)}, more than {limit}"
        if peak <= aim.run_limit_bytes:
            trouble = f"trains {format_rate(_rate(own))} samples/s and {trouble}"
    elif own is not None and isinstance(own.outcome, OutOfMemory):
        trouble = f"runs out of memory within {format_bytes(aim.run_limit_bytes)}"
    elif own is not None and own.measured:
        trouble = f"only just fits {limit}: its allocator had to free memory and try again"
    else:
        trouble = "could not be measured"
    figures = figures_of(record, best)
    assert figures is not None, "it is feasible, so it was measured"
    rate, needs = f"{format_rate(figures.samples_per_s)} samples/s", format_bytes(peak_bytes(figures.peaks) or 0)
    once = "" if rounds_of(record.repeats, best) else ", measured once"
    found = f"{_name(best)} trains {rate} within {needs}"
    if aim.seeks_memory:
        slower = f"no more than {format_share(1 - aim.slowest)} below the fastest found"
        found += f", the least memory at {slower} ({format_rate(fastest_per_s)} samples/s)"
    return f"Your baseline {trouble}; {found}{once}."


def _no_less_memory(best: Comparison, needed: float, rounds: str, aim: Aim) -> str:
    name = _name(best.configuration)
    if best.peak_ratio * LEAST_GAIN > 1:
        return (
            f"Your baseline is already the best: {name}, measured again in {rounds} beside it, came to "
            f"{best.peak_ratio:.3f}x its memory ({_peaks(best)})."
        )
    stays = f"Your baseline stays: {name} needs {_less_memory(best)} ({_peaks(best)})"
    if not is_slow(best):
        chance = f"anything over {1 / max(needed, LEAST_GAIN):.2f}x the memory may be chance"
        return f"{stays} in {rounds} beside it, but they vary so much here that {chance}."
    speed = f"came to {best.speedup:.3f}x its samples per second in {rounds} beside it ({_spread(best)})"
    if best.speedup < aim.slowest:
        return f"{stays}, but {speed}, and no less than {aim.slowest:.3f}x is allowed."
    more = "more --rounds or a larger --max-slowdown would"
    return f"{stays} and {speed}, but that varies too much to show at least {aim.slowest:.3f}x: {more}."


def _rate(trial: Trial) -> float:
    return trial.measured.measurement.samples_per_s if trial.measured else 0.0


def _peak(trial: Trial) -> int | None:
    return peak_bytes(trial.measured.measurement.peaks) if trial.measured else None


def _name(configuration: Configuration) -> str:
    plans = configuration.recomputed
    compiled = ENGINES[configuration.engine].in_verdict
    if configuration.choices:
        compiled += f", {' '.join(configuration.choices)}"
    if configuration.batch_size is None:
        return f"{plans or 'the script without plans'}{compiled}"
    at = f"batch {configuration.batch_size}"
    return f"{plans} at {at}{compiled}" if plans else f"{at} without plans{compiled}"


def _versus(comparison: Comparison) -> str:
    return f"{format_rate(comparison.samples_per_s)} vs {format_rate(comparison.baseline_samples_per_s)} samples/s"


def _peaks(comparison: Comparison) -> str:
    return f"{format_bytes(comparison.peak_bytes)} vs {format_bytes(comparison.baseline_peak_bytes)}"


def _less_memory(comparison: Comparison) -> str:
    return f"{format_share(1 - comparison.peak_ratio)} less memory"


def _spread(comparison: Comparison) -> str:
    return f"{comparison.speedup_low:.3f}x to {comparison.speedup_high:.3f}x over the rounds"


def _rounds(count: int) -> str:
    return f"{count} round{'s' if count != 1 else ''}"
