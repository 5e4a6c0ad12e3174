"""The sentences that say a study's answer: one function for each end of a study, and what compiling would gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from ..records.configuration import Configuration
from ..records.facts import Facts
from ..records.figures import Figures, format_peak
from ..records.measurement import Measurement
from ..records.outcome import OutOfMemory
from ..records.study import Comparison, Repeat, StudyRecord, Trial
from ..records.study_results import figures_of, repetitions_of
from ..records.units import TELLS_NOTHING, format_bytes, format_rate, format_ratio, format_share, format_speed
from ..records.words import counted, sentence, setting_words
from .aim import Aim
from .contention import lacks_kernels, times_as_fast_alone
from .feasible import is_feasible
from .finalists import baseline_is_finite
from .sequential import FIRST_LOOK, LEAST_GAIN, LEAST_NOISE, student_quantile

_UNKNOWN_PLANS = "it is not known what could be recomputed"
# Other programs are told of if they were there in at least this share of measurements.
_WORTH_TELLING_OF = 0.1


def scope_of(tried: Sequence[Trial], facts: Facts, num_configurations: int, cut_short: str) -> str:
    """Return what an answer is about where the search was cut short; empty where it ended by itself."""
    if not cut_short:
        return ""
    others = [trial for trial in tried if trial.configuration.key != facts.baseline.key]
    measured = len({trial.configuration.key for trial in others if trial.measured})
    failed = sum(trial.measured is None for trial in others)
    more = f" ({counted(failed, 'more trial')} failed)" if failed else ""
    return f"{counted(measured, 'other')} measured of {num_configurations:,} settings{more}; {cut_short}"


def only_the_baseline(own: Trial, num_failed: int, cut_short: str) -> str:
    """Say that nothing else tells anything yet."""
    rate = format_speed(own.samples_per_s)
    if not num_failed:
        return f"Only your baseline was measured, {rate}, and nothing was tried: {cut_short}."
    return f"Only your baseline could be measured, {rate}: {counted(num_failed, 'other trial')} failed."


def winner(best: Comparison, aim: Aim) -> str:
    """Say that a finalist won."""
    name, repetitions = _name(best.configuration, aim), counted(best.repetitions, "repetition")
    if aim.seeks_memory:
        return (
            f"{name} needs {_less_memory(best)} than your baseline ({_peaks(best)}) at {best.speedup:.3f}x its samples "
            f"per second (at least {_bound(best.speedup_low)} by {repetitions}, {aim.slowest:.3f}x is allowed)."
        )
    return (
        f"{name} gives {best.speedup:.2f}x as many samples per second as your baseline ({_versus(best)}; at least "
        f"{_bound(best.speedup_low)} by {repetitions}) within {aim.limit_text()}."
    )


def not_told(configuration: Configuration, comparison: Comparison | None, aim: Aim, *, is_best: bool) -> str:
    """Say that one of the best has too few repetitions; ``is_best``: its trial was the best of those that may win."""
    name = _name(configuration, aim)
    best = f"{name} needs the least memory so far" if aim.seeks_memory else f"{name} is the fastest so far"
    if not is_best:
        best = f"{name} may be the best so far"
    repetitions = 0 if comparison is None else comparison.repetitions
    if comparison is not None and repetitions >= FIRST_LOOK:
        return f"{best}: {_may_be(comparison, aim)}, but {_do_not_tell(comparison)} yet."
    if not repetitions:
        return f"{best}, but was not measured again beside your baseline yet."
    return f"{best}, but {counted(repetitions, 'repetition')} beside your baseline are too few to tell."


def failed(repeats: Sequence[Repeat], baseline: Configuration) -> str:
    """Say that the baseline failed in some of its repetitions; empty where it did not."""
    own = repetitions_of(repeats, baseline)
    count = sum(one.outcome.measurement is None for one in own)
    return f"Your baseline failed in {count} of {counted(len(own), 'repetition')}." if count else ""


def doubtful(held_back: Trial, own: Trial, aim: Aim, scope: str = "") -> str:
    """Say that nothing was better than the baseline, but one may be; ``scope`` as of ``scope_of``."""
    assert held_back.measured
    assert own.measured
    how = []
    if held_back.measured.contended:
        how.append("while other programs kept the machine busy")
    if lacks_kernels(held_back.measured, own.measured):
        how.append("without the search for kernels that was asked for")
    otherwise = "alone" if held_back.measured.contended else "with that"
    better = "need less memory at an allowed speed" if aim.seeks_memory else "be faster"
    reason = (
        f"Nothing was better than your baseline so far, but {_name(held_back.configuration, aim)} was measured "
        f"{' and '.join(how)}: {otherwise} it may {better}, and no repetition beside your baseline has told yet."
    )
    return f"{reason} That is of the {scope}." if scope else reason


def no_win(compared: Sequence[Comparison], aim: Aim, scope: str = "") -> str:
    """Say that none of the finalists is shown to be better than the baseline; ``scope`` as of ``scope_of``."""
    reason = _no_win([one for one in compared if one.is_open] or compared, aim, is_all=not scope)
    return f"{reason} That is of the {scope}." if scope else reason


def _no_win(compared: Sequence[Comparison], aim: Aim, *, is_all: bool) -> str:
    # Only a search that ended by itself lets an answer speak of what was not tried (`is_all`).
    held = [one for one in compared if one.found != "failed"]
    best = max(held or compared, key=lambda one: (aim.bounds(one) or (0.0, aim.ratio(one)))[1])
    name, repetitions = _name(best.configuration, aim), counted(best.repetitions, "repetition")
    better = "smaller" if aim.seeks_memory else "faster"
    if not held:
        return (
            f"Your baseline stays: {name} was {better} in the search, but beside it did not always train within "
            f"{aim.limit_text()}."
        )
    if aim.seeks_memory and best.found == "win":
        return _too_slow(best, aim)
    match best.found:
        case "no_better":
            opening = "Your baseline is already the best" if is_all else "Your baseline stays"
            figures = _peaks(best) if aim.seeks_memory else _versus(best)
            return (
                f"{opening}: {name}, measured again in {repetitions} beside it, is not {better} by "
                f"{format_share(LEAST_GAIN - 1)} or more ({figures})."
            )
        case "hopeless":
            mean = format_ratio(best.peak_ratio if aim.seeks_memory else best.speedup)
            return (
                f"Your baseline stays: {name} is unlikely to be shown {better}, so measuring it stopped after {repetitions} "
                f"beside it ({mean} in the mean; {_between(best, aim)} by the repetitions)."
            )
        case "unresolved":
            return f"Your baseline stays: {name} {_may_be(best, aim)}; {_do_not_tell(best)}."
        case _:
            return f"Your baseline stays: {name} may be {better}, but {_do_not_tell(best)} yet."


def busy(record: StudyRecord, compared: Sequence[Comparison], aim: Aim) -> str:
    """Say that other programs were at work too, and which difference can be trusted even so; empty if they were not.

    ``compared`` are the comparisons that the answer rests on: the winner's where there is one.
    """
    rests_on, are_repetitions = _rests_on(record)
    count = sum(one.contended for one in rests_on)
    if not count or count < _WORTH_TELLING_OF * len(rests_on):
        return ""
    what = f"the machine busy in {_share(count, rests_on, are_repetitions)}"
    known = [(bounds, one) for one in compared if (bounds := aim.bounds(one)) is not None]
    if not known:
        speeds = "figures of these repetitions" if are_repetitions else "speeds measured once"
        factor = max(map(times_as_fast_alone, rests_on))
        return f"Other programs kept {what}: {speeds} can be trusted to a factor of {factor:.2g} only."
    least = max(bounds[1] / aim.ratio(one) for bounds, one in known)
    if least > TELLS_NOTHING:
        again = "measure again when they are done, as a study of another name (--study)"
        return f"Other programs kept {what}, which tell next to nothing: {again}."
    difference = f"{least:.1f}x" if least >= 2 else format_share(least - 1)
    return f"Other programs kept {what}: only a difference of {difference} or more can be trusted."


def too_busy() -> str:
    """Say that other programs slowed everything down so much that nothing can be told."""
    return "Other programs kept this machine too busy to tell: end them first."


def slowed_down(best: Configuration, aim: Aim) -> str:
    """Say that other programs slowed the best down so much that it can't be told for the best."""
    name = sentence(_name(best, aim))
    return f"{too_busy()} {name} may be the best; beside other programs it was no faster than your script."


def left_out(best: Trial, aim: Aim) -> str:
    """Say that the best trial was not measured again, as it may not fit again."""
    better = "smaller" if aim.seeks_memory else "faster"
    peak = format_bytes(best.peak_bytes or 0)
    return (
        f"{sentence(_name(best.configuration, aim))} was {better} in its trial, at a peak of {peak}. It was left out: "
        f"peaks differ between processes, and in another its peak may pass {aim.limit_text()}."
    )


def throttled(record: StudyRecord) -> str:
    """Say that the GPU was too hot or short of power in some of what the answer rests on; empty where it was not."""
    rests_on, are_repetitions = _rests_on(record)
    count = sum(one.conditions is not None and one.conditions.throttled_share > 0 for one in rests_on)
    if not count:
        return ""
    slowed = f"Heat or its power supply slowed the GPU down in {_share(count, rests_on, are_repetitions)}"
    return f"{slowed}, which makes them scatter: with better cooling they tell more."


def unsearched(record: StudyRecord) -> str:
    """Say that the answer rests on trials that leave out the search for kernels; empty where it does not."""
    rests_on, _ = _rests_on(record)
    if all(one.kernels_searched for one in rests_on):
        return ""
    return (
        "Trials were measured without the search for kernels (max-autotune), which takes minutes: with it they may be "
        "faster."
    )


def _rests_on(record: StudyRecord) -> tuple[list[Measurement], bool]:
    """Return the measurements of an answer, and whether they are those of repetitions: else they are the trials'."""
    repetitions = [one.outcome.measurement for one in record.repeats if one.outcome.measurement]
    return repetitions or [trial.measured for trial in record.trials if trial.measured], bool(repetitions)


def _share(count: int, rests_on: Sequence[Measurement], are_repetitions: bool) -> str:
    return f"{count} of {len(rests_on)} {'measurements of these repetitions' if are_repetitions else 'trials'}"


def not_finite() -> str:
    """Say that the baseline's loss is not a number, which no setting mends."""
    return (
        "The loss of your script as it stands is NaN or infinite: lower its learning rate or look at its data before "
        "you train with any setting."
    )


def nothing_better(own: Trial, tried: Sequence[Trial], aim: Aim, scope: str = "", *, knows_plans: bool = True) -> str:
    """Say that no trial was better than the baseline's; ``scope`` as of ``scope_of``."""
    rate, peak = format_speed(own.samples_per_s), format_bytes(own.peak_bytes or 0)
    if scope:
        figure = peak if aim.seeks_memory else rate
        return f"Nothing better than your baseline, {figure}, among the {scope}."
    others = len({trial.configuration.key for trial in tried if trial.measured}) - 1
    if not others and not knows_plans:
        return f"Your baseline stays, at {rate}: nothing else was tried, and {_UNKNOWN_PLANS}."
    if not others:
        return (
            f"Your baseline is already the best, at {rate}: nothing that can be changed is expected to be "
            f"better within {aim.limit_text()}."
        )
    opening = "Your baseline is already the best" if knows_plans else "Your baseline stays"
    untried = "nothing else is expected to" if knows_plans else _UNKNOWN_PLANS
    measured = f"{counted(others, 'other setting')} measured"
    if aim.seeks_memory:
        least = format_speed(aim.slowest * own.samples_per_s)
        return (
            f"{opening}: of {measured}, none needs less than its "
            f"{peak} by more than half a percent at {least} or more, and {untried}."
        )
    return (
        f"{opening}: of {measured} within {aim.limit_text()}, none beats "
        f"its {rate} by more than half a percent, and {untried}."
    )


def nothing_fits(record: StudyRecord, aim: Aim) -> str:
    """Say that nothing trains within the limit."""
    reliably = "reliably " if record.repeats else ""
    nothing = f"Nothing tried trains {reliably}within {aim.limit_text()}"
    option = "--memory-limit" if record.spec.objective.target_memory_bytes is None else "--target-memory"
    more = f"Allow more with {option}, or smaller batches with --batch-sizes."
    seen = {peak: trial for trial in record.trials if (peak := trial.peak_bytes) is not None}
    if not seen:
        return f"{nothing}. {more}"
    least, trial = min(seen.items())
    return (
        f"{nothing}; the least seen was {format_bytes(least)}, by {_name(trial.configuration, aim)}, at "
        f"{format_speed(trial.samples_per_s)}. {more}"
    )


def does_not_fit(own: Trial | None, aim: Aim) -> str:
    """Say that the baseline does not fit, and by what."""
    limit, peak = aim.limit_text(), None if own is None else own.peak_bytes
    if own is not None and peak is not None and peak > aim.limit_bytes:
        trouble = f"needs {format_bytes(peak)}, more than {limit}"
        if peak <= aim.run_limit_bytes:
            trouble = f"gives {format_speed(own.samples_per_s)} and {trouble}"
    elif own is not None and isinstance(own.outcome, OutOfMemory):
        trouble = f"runs out of memory within {format_bytes(aim.run_limit_bytes)}"
    elif own is not None and own.measured:
        trouble = f"only just fits {limit}: its allocator had to free memory and try again"
    else:
        trouble = "could not be measured"
    return f"Your baseline {trouble}."


def fits_instead(record: StudyRecord, best: Configuration, fastest_per_s: float, aim: Aim) -> str:
    """Say what fits where the baseline does not."""
    figures = figures_of(record, best)
    assert figures is not None, "it is feasible, so it was measured"
    rate, needs = format_speed(figures.samples_per_s), format_bytes(figures.peaks.fit_bytes or 0)
    once = "" if repetitions_of(record.repeats, best) else ", measured once"
    found = f"{_name(best, aim)} gives {rate} within {needs}"
    if aim.seeks_memory:
        slower = f"no more than {format_share(1 - aim.slowest)} below the fastest found"
        found += f", the least memory at {slower} ({format_speed(fastest_per_s)})"
    return f"{found}{once}."


def _too_slow(best: Comparison, aim: Aim) -> str:
    repetitions = counted(best.repetitions, "repetition")
    stays = f"Your baseline stays: {_name(best.configuration, aim)} needs {_less_memory(best)} ({_peaks(best)})"
    speed = f"came to {best.speedup:.3f}x its samples per second in {repetitions} beside it ({_speeds(best)})"
    if best.found_fast == "no_better":
        return f"{stays}, but {speed}, and no less than {aim.slowest:.3f}x is allowed."
    return (
        f"{stays} and {speed}, but that varies too much to show at least {aim.slowest:.3f}x: a larger --max-slowdown "
        "or a quieter machine would."
    )


def _name(configuration: Configuration, aim: Aim) -> str:
    return setting_words(configuration, aim.clusters)


def _versus(comparison: Comparison) -> str:
    ours, own = _both_figures(comparison)
    return f"{format_rate(ours.samples_per_s)} vs {format_speed(own.samples_per_s)}"


def _peaks(comparison: Comparison) -> str:
    ours, own = _both_figures(comparison)
    return f"{format_peak(ours.peaks)} vs {format_peak(own.peaks)}"


def _both_figures(comparison: Comparison) -> tuple[Figures, Figures]:
    assert comparison.figures is not None, "its repetitions were measured"
    assert comparison.baseline_figures is not None, "a confirmation without the baseline compares nothing"
    return comparison.figures, comparison.baseline_figures


def _less_memory(comparison: Comparison) -> str:
    return f"{format_share(1 - comparison.peak_ratio)} less memory"


def _may_be(comparison: Comparison, aim: Aim) -> str:
    better = "smaller" if aim.seeks_memory else "faster"
    return f"may be {better} than your baseline ({_between(comparison, aim)})"


def _between(comparison: Comparison, aim: Aim) -> str:
    if not aim.seeks_memory:
        return _speeds(comparison)
    low, high = _bound(comparison.peak_ratio_low), _bound(comparison.peak_ratio_high)
    return f"{low} to {high} its memory"


def _speeds(comparison: Comparison) -> str:
    return f"{_bound(comparison.speedup_low)} to {_bound(comparison.speedup_high)}"


def _bound(ratio: float | None) -> str:
    return "?" if ratio is None else format_ratio(ratio)


def _do_not_tell(comparison: Comparison) -> str:
    return f"{counted(comparison.repetitions, 'repetition')} beside it {'do' if comparison.repetitions != 1 else 'does'} not tell"


# What compiling brings is told from here on, and where nothing says how far runs scatter, from there. One run in twenty
# that is no better may seem to be: what is offered is to look for more, and nothing is answered by it.
_WORTH_TELLING, _WITHOUT_ROUNDS = 1.05, 1.1
_LEVEL = 0.05


def compiled_gain(record: StudyRecord) -> float | None:
    """Return how many times as good as the answer its setting was compiled, in one run; None where that shows no gain.

    A gain is more than one run and repetitions like the answer's may differ by chance. Where the objective is memory,
    the run has to be no slower than the answer's slowest repetition.
    """
    facts, verdict = record.facts, record.verdict
    run, winner = (None, None) if verdict is None else (verdict.compiled, verdict.winner)
    if facts is None or verdict is None or run is None or winner is None or run.answer.key != winner.key:
        return None
    aim = Aim(record.spec.objective, verdict.memory_limit_bytes)
    own = [one.outcome.measurement for one in repetitions_of(record.repeats, winner) if one.outcome.measurement]
    own = own or [one.measured for one in record.trials if one.measured and one.configuration.key == winner.key]
    merits, measurement = [aim.merit_of(one) for one in own], run.outcome.measurement
    if measurement is None or not merits or min(merits) <= 0:
        return None
    is_finite = baseline_is_finite(record.trials, facts)
    if not is_feasible(measurement, aim.limit_bytes, baseline_is_finite=is_finite) or not aim.merit_of(measurement):
        return None
    if aim.seeks_memory and measurement.samples_per_s < min(one.samples_per_s for one in own):
        return None
    logs = [math.log(one) for one in merits]
    gain = math.log(aim.merit_of(measurement)) - fmean(logs)
    alone = 1.0 if aim.seeks_memory else max(map(times_as_fast_alone, own))
    least = math.log(_WITHOUT_ROUNDS * alone)
    if len(logs) >= FIRST_LOOK:  # how busy the machine was is in how they scatter
        scatter = max(stdev(logs), LEAST_NOISE) * math.sqrt(1 + 1 / len(logs))
        least = max(math.log(_WORTH_TELLING), student_quantile(_LEVEL, len(logs) - 1) * scatter)
    return math.exp(gain) if gain > least else None
