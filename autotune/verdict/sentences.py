"""The sentences of a study's answer: one function for each end of a study, and for each remark on it."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.configuration import Configuration
from ..records.facts import ClusterFacts, Facts
from ..records.figures import Figures, format_measured, format_peak
from ..records.global_batch import global_batch
from ..records.measurement import Measurement
from ..records.outcome import OutOfMemory
from ..records.printable import shell_line
from ..records.proof import Proof
from ..records.study import Comparison, Remark, Repeat, StudyRecord, Trial
from ..records.study_results import figures_of, repetitions_of, trials_of
from ..records.units import (
    TELLS_NOTHING,
    format_bytes,
    format_duration,
    format_rate,
    format_ratio,
    format_share,
    format_speed,
)
from ..records.words import counted, sentence, setting_words
from .aim import Aim
from .contention import lacks_kernels, times_as_fast_alone
from .sequential import FIRST_LOOK, LEAST_GAIN

_UNKNOWN_PLANS = "it is not known what could be recomputed"
# Whole epochs are told from training steps where a gain is less by this factor, and epochs have so many steps.
_WORTH_CORRECTING, _LEAST_STEPS = 1.05, 4
_UNEQUAL = 1.05
# Other programs are reported if they were there in at least this share of measurements.
_WORTH_REPORTING = 0.1


def scope_of(tried: Sequence[Trial], facts: Facts, num_configurations: int, cut_short: str) -> str:
    """Return how much a search covered that was cut short, as a sentence; empty where it ended by itself."""
    if not cut_short:
        return ""
    others = [trial for trial in tried if trial.configuration.key != facts.baseline.key]
    measured = len({trial.configuration.key for trial in others if trial.measured})
    failed = sum(trial.measured is None for trial in others)
    more = f" ({counted(failed, 'more trial')} failed)" if failed else ""
    of = f" of {num_configurations - 1:,}" if num_configurations > 1 else ""
    return f"The search measured {measured}{of} other settings{more}: {cut_short}."


NOTHING_MEASURED = Remark("nothing_measured", "Nothing was measured yet.")


BASELINE_NOT_MEASURED = Remark("baseline_not_measured", "The baseline was not measured yet.")


NOT_COUNTED = Remark("not_counted", "The baseline's samples could not be counted, so speeds can't be compared.")


def only_the_baseline(own: Trial, num_failed: int, cut_short: str) -> Remark:
    """Say that nothing but the baseline was measured."""
    rate = format_speed(own.samples_per_s)
    if not num_failed:
        return Remark("only_baseline", f"Only your baseline was measured, at {rate}, and nothing else: {cut_short}.")
    failed = counted(num_failed, "other trial")
    return Remark("only_baseline", f"Only your baseline could be measured, at {rate}: {failed} failed.")


def winner(best: Comparison, aim: Aim) -> Remark:
    """Say that a finalist won."""
    name, repetitions = _name(best.configuration, aim), counted(best.repetitions, "repetition")
    if aim.seeks_memory:
        text = (
            f"{name} needs {_less_memory(best)} than your baseline ({_peaks(best)}) at {best.speedup:.3f}x its samples "
            f"per second (at least {_bound(best.speedup_low)} in {repetitions}; {aim.slowest:.3f}x is allowed)."
        )
    else:
        text = (
            f"{name} gives {best.speedup:.2f}x as many samples per second as your baseline ({_versus(best)}; at least "
            f"{_bound(best.speedup_low)} in {repetitions}) within {aim.limit_text()}."
        )
    return Remark("winner", sentence(text))


def unconfirmed(configuration: Configuration, comparison: Comparison | None, aim: Aim, *, is_best: bool) -> Remark:
    """Say that one of the best has too few repetitions; ``is_best``: its trial was the best of those that may win."""
    name = _name(configuration, aim)
    best = f"{name} needs the least memory so far" if aim.seeks_memory else f"{name} is the fastest so far"
    if not is_best:
        best = f"{name} may be the best so far"
    repetitions = 0 if comparison is None else comparison.repetitions
    if not repetitions:
        return Remark("unconfirmed", f"{sentence(best)}, but was not yet measured again in turns with your baseline.")
    why = f"{counted(repetitions, 'repetition')} cannot show a difference"
    if comparison is not None and repetitions >= FIRST_LOOK:
        is_smaller = aim.seeks_memory and comparison.found == "win"
        range_ = f"{_speeds(comparison)} the speed" if is_smaller else f"{_between(comparison, aim)} {_figure(aim)}"
        why = f"{range_} in {counted(repetitions, 'repetition')}"
    return Remark("unconfirmed", f"{sentence(best)}, but is not confirmed: {why}.")


def baseline_failed(repeats: Sequence[Repeat], baseline: Configuration) -> Remark | None:
    """Say that the baseline failed in some of its repetitions; None where it did not."""
    own = repetitions_of(repeats, baseline)
    count = sum(one.outcome.measurement is None for one in own)
    text = f"Your baseline failed in {count} of {counted(len(own), 'repetition')}."
    return Remark("baseline_failed", text) if count else None


def disturbed(held_back: Trial, own: Trial, aim: Aim, scope: str = "") -> Remark:
    """Say that a setting which was measured under a disadvantage may be better; ``scope`` as of ``scope_of``."""
    assert held_back.measured
    assert own.measured
    how = []
    if held_back.measured.contended:
        how.append("while other programs used the machine")
    if lacks_kernels(held_back.measured, own.measured):
        how.append("without the kernel search that the script asks for")
    better = "need less memory at an allowed speed" if aim.seeks_memory else "be faster"
    text = (
        f"Nothing was better than your baseline so far. But {_name(held_back.configuration, aim)} was measured "
        f"{' and '.join(how)}: it may really {better}, and was not yet measured again in turns with your baseline."
    )
    return Remark("disturbed", f"{text} {scope}".rstrip())


def no_win(compared: Sequence[Comparison], aim: Aim, scope: str = "") -> Remark:
    """Say that no finalist is shown to be better than the baseline; ``scope`` as of ``scope_of``."""
    among = [one for one in compared if one.is_open] or compared
    held = [one for one in among if one.found != "failed"]
    best = max(held or among, key=lambda one: (aim.bounds(one) or (0.0, aim.ratio(one)))[1])
    name, repetitions = _name(best.configuration, aim), counted(best.repetitions, "repetition")
    better = "smaller" if aim.seeks_memory else "faster"
    if not held:
        text = (
            f"Your baseline stays: {name} was {better} in the search, but did not always train within "
            f"{aim.limit_text()} when it was measured again."
        )
        return Remark("unreliable", f"{text} {scope}".rstrip())
    if aim.seeks_memory and best.found == "win":
        return Remark("too_slow", f"{_too_slow(best, aim)} {scope}".rstrip())
    match best.found:
        case "no_better":
            # Only a search that ended by itself lets an answer speak of what was not tried.
            opening = "Your baseline stays" if scope else "Your baseline is already the best"
            figures = _peaks(best) if aim.seeks_memory else _versus(best)
            text = (
                f"{opening}: {name}, measured again in {repetitions}, is not {better} by "
                f"{format_share(LEAST_GAIN - 1)} or more ({figures})."
            )
            return Remark("no_better", f"{text} {scope}".rstrip())
        case "futile":
            mean = format_ratio(best.peak_ratio if aim.seeks_memory else best.speedup)
            text = (
                f"Your baseline stays: {name} came to {mean} {_figure(aim)} ({_between(best, aim)}, {repetitions}), "
                f"and more repetitions would hardly show that it is {better}."
            )
            return Remark("futile", f"{text} {scope}".rstrip())
        case _:
            yet = "" if best.found == "unresolved" else " yet"
            do = "do" if best.repetitions != 1 else "does"
            range_ = f" ({_between(best, aim)} {_figure(aim)})" if aim.bounds(best) else ""
            text = f"Your baseline stays: {name} may be {better}{range_}, but {repetitions} {do} not decide it{yet}."
            return Remark("unresolved", f"{text} {scope}".rstrip())


def busy(record: StudyRecord, compared: Sequence[Comparison], aim: Aim) -> Remark | None:
    """Say that other programs used the machine, and which difference is reliable even so; None if they did not.

    ``compared`` are the comparisons that the answer rests on: the winner's where there is one.
    """
    rests_on, are_repetitions = _rests_on(record)
    count = sum(one.contended for one in rests_on)
    if not count or count < _WORTH_REPORTING * len(rests_on):
        return None
    opening = f"Other programs used the machine in {_share(count, rests_on, are_repetitions)}"
    known = [(bounds, one) for one in compared if (bounds := aim.bounds(one)) is not None]
    if not known:
        speeds = "these speeds" if are_repetitions else "speeds measured once"
        factor = max(map(times_as_fast_alone, rests_on))
        return Remark("machine_busy", f"{opening}: {speeds} are reliable to a factor of {factor:.2g} only.")
    least = max(bounds[1] / aim.ratio(one) for bounds, one in known)
    if least > TELLS_NOTHING:
        again = "measure again when these programs have ended, as a study of another name (--study)"
        return Remark("machine_busy", f"{opening}, and the figures show next to nothing: {again}.")
    difference = f"{least:.1f}x" if least >= 2 else format_share(least - 1)
    return Remark("machine_busy", f"{opening}: only differences of {difference} or more are reliable.")


TOO_BUSY = Remark("machine_too_busy", "Other programs kept this machine too busy for an answer: end them first.")


def slowed_down(best: Configuration, aim: Aim) -> Remark:
    """Say that other programs slowed the best down so much that there is no answer."""
    name = sentence(_name(best, aim))
    text = f"{TOO_BUSY.text} {name} may be the best, but was no faster than your script while they ran."
    return Remark("machine_too_busy", text)


def left_out(best: Trial, aim: Aim) -> Remark:
    """Say that the best trial was not measured again, as it may not fit again."""
    better = "smaller" if aim.seeks_memory else "faster"
    peak = format_bytes(best.peak_bytes or 0)
    text = (
        f"{sentence(_name(best.configuration, aim))} was {better} in its trial, at a peak of {peak}. It was left out: "
        f"peaks differ between processes, and in another process it may pass {aim.limit_text()}."
    )
    return Remark("may_not_fit_again", text)


def whole_epochs(record: StudyRecord, best: Comparison) -> Remark | None:
    """Say how much of a winner's gain whole epochs have, where each waits for its first batch; None for all of it."""
    facts, own = record.facts, record.baseline
    ours = next(iter(trials_of(record, best.configuration)), None)
    if facts is None or facts.epoch is None or own is None or own.measured is None or ours is None:
        return None
    waits_s = (ours.epoch_wait_s, own.measured.epoch_wait_s)
    steps = [global_batch(record, one) for one in (best.configuration, facts.baseline)]
    # In an epoch of few steps the wait is in their times already.
    if None in waits_s or not all(one and (one.steps_per_epoch or 0) >= _LEAST_STEPS for one in steps):
        return None
    samples = facts.epoch.samples * own.measured.num_processes
    own_s = samples / _both_figures(best)[1].samples_per_s
    wait_s, own_wait_s = (seconds or 0.0 for seconds in waits_s)
    ratio = (own_s + own_wait_s) / (own_s / best.speedup + wait_s)
    if best.speedup < _WORTH_CORRECTING * ratio:
        return None
    waits = f"{format_duration(wait_s)} for its first batch ({format_duration(own_wait_s)} in your script)"
    text = (
        f"These speeds are of training steps. Each epoch also waits {waits}: whole epochs of {samples:,} samples are "
        f"{format_ratio(ratio)} as fast."
    )
    return Remark("epochs_wait", text)


def not_confirmed(best: Trial, aim: Aim, study: str) -> Remark:
    """Say that a trial was better than the answer, and that its setting was not measured again."""
    assert best.measured
    better = "smaller" if aim.seeks_memory else "faster"
    name = sentence(_name(best.configuration, aim))
    text = (
        f"{name} was {better} in its only trial ({format_measured(best.measured)}). "
        f"It is not confirmed: `{shell_line(['autotune', 'resume', study])}` goes on, or with more --time-budget."
    )
    return Remark("better_unconfirmed", text)


def throttled(record: StudyRecord) -> Remark | None:
    """Say that the GPU was too hot or short of power in some of the measurements; None where it was not."""
    rests_on, are_repetitions = _rests_on(record)
    count = sum(one.conditions is not None and one.conditions.throttled_share > 0 for one in rests_on)
    slowed = f"Heat or the power supply slowed the GPU down in {_share(count, rests_on, are_repetitions)}"
    return Remark("gpu_throttled", f"{slowed}. Better cooling would make the figures scatter less.") if count else None


def unequal_ranks(record: StudyRecord) -> Remark | None:
    """Say which of the script's processes needs the most memory; None where they need about the same."""
    own = None if record.baseline is None else record.baseline.measured
    peaks = [] if own is None else [peaks.fit_bytes or 0 for peaks in own.rank_peaks]
    most, least = max(peaks, default=0), min(peaks, default=0)
    if most < _UNEQUAL * least or not least:
        return None
    text = (
        f"Of the {len(peaks)} processes of your script rank {peaks.index(most)} needs the most memory, "
        f"{format_bytes(most)}, and rank {peaks.index(least)} the least, {format_bytes(least)}."
    )
    return Remark("ranks_differ", text)


def unsearched(record: StudyRecord) -> Remark | None:
    """Say that the answer rests on trials that leave out the kernel search; None where it does not."""
    rests_on, _ = _rests_on(record)
    text = "Trials leave out the kernel search (max-autotune), which takes minutes. With it they may be faster."
    return None if all(one.kernels_searched for one in rests_on) else Remark("kernels_not_searched", text)


def _rests_on(record: StudyRecord) -> tuple[list[Measurement], bool]:
    """Return the measurements of an answer, and whether they are those of repetitions: else they are the trials'."""
    repetitions = [one.outcome.measurement for one in record.repeats if one.outcome.measurement]
    return repetitions or [trial.measured for trial in record.trials if trial.measured], bool(repetitions)


def _share(count: int, rests_on: Sequence[Measurement], are_repetitions: bool) -> str:
    return f"{count} of {len(rests_on)} {'measurements of the confirmation' if are_repetitions else 'trials'}"


NOT_FINITE = Remark(
    "loss_not_finite",
    "The loss of your unchanged script is NaN or infinite: lower its learning rate or check its data before you train "
    "with any setting.",
)


PLANS_NOT_SEARCHED = Remark(
    "plans_not_searched",
    "No plans were tried: they take time, and the memory they save has no use while the batch size stays. To look for "
    "less memory, ask with --objective memory.",
)


def batch_size_left_alone(record: StudyRecord, facts: Facts) -> Remark | None:
    """Say why no other batch size can be tried, and how that is changed; None where one size was asked for."""
    control, own = facts.batch_control, facts.baseline.batch_size
    if control.how != "none" or record.spec.batch_sizes == (own, own):
        return None
    advice = control.advice_to_pass(facts.batch_size) if facts.target == "script" else ""
    return Remark("batch_size_stays", f"The batch size stays: {control.reason}. {advice}".rstrip())


def not_equivalent(proof: Proof, clusters: Sequence[ClusterFacts]) -> Remark:
    """Say that a setting changes what the script computes, by its proof."""
    name = sentence(setting_words(proof.configuration, clusters))
    return Remark("not_equivalent", f"{name} may not win. {proof.statement}")


NONE_EQUIVALENT = Remark("not_equivalent", "So no other setting that changes how the script computes may win either.")


def nothing_to_try(own: Trial) -> Remark:
    """Say that the script as it is, is the only setting."""
    rate = format_speed(own.samples_per_s)
    return Remark("nothing_better", f"Your baseline stays, at {rate}: at its batch size nothing else is worth trying.")


def nothing_better(
    own: Trial, tried: Sequence[Trial], aim: Aim, scope: str = "", *, knows_plans: bool = True
) -> Remark:
    """Say that no trial was better than the baseline's; ``scope`` as of ``scope_of``."""
    return Remark("nothing_better", _nothing_better(own, tried, aim, scope, knows_plans=knows_plans))


def _nothing_better(own: Trial, tried: Sequence[Trial], aim: Aim, scope: str, *, knows_plans: bool) -> str:
    rate, peak = format_speed(own.samples_per_s), format_bytes(own.peak_bytes or 0)
    if scope:
        figure = peak if aim.seeks_memory else rate
        return f"Nothing was better than your baseline ({figure}). {scope}"
    others = len({trial.configuration.key for trial in tried if trial.measured}) - 1
    if not others and not knows_plans:
        return f"Your baseline stays, at {rate}: nothing else was tried, and {_UNKNOWN_PLANS}."
    if not others:
        return (
            f"Your baseline is already the best, at {rate}: no other setting is expected to be better within "
            f"{aim.limit_text()}."
        )
    opening = "Your baseline is already the best" if knows_plans else "Your baseline stays"
    untried = "no untried setting is expected to" if knows_plans else _UNKNOWN_PLANS
    measured = f"{counted(others, 'other setting')} measured"
    if aim.seeks_memory:
        least = format_speed(aim.slowest * own.samples_per_s)
        return (
            f"{opening}: of {measured}, none needs less than its {peak} by more than 0.5 % at {least} or more, and "
            f"{untried}."
        )
    return (
        f"{opening}: of {measured} within {aim.limit_text()}, none beats its {rate} by more than 0.5 %, and {untried}."
    )


def nothing_fits(record: StudyRecord, aim: Aim) -> Remark:
    """Say that nothing trains within the limit."""
    reliably = "reliably " if record.repeats else ""
    nothing = f"Nothing tried trains {reliably}within {aim.limit_text()}"
    option = "--memory-limit" if record.spec.objective.target_memory_bytes is None else "--target-memory"
    smaller = ", or smaller batches with --batch-sizes" if _leaves_sizes_out(record) else ""
    more = f"Allow more with {option}{smaller}."
    seen = {peak: trial for trial in record.trials if (peak := trial.peak_bytes) is not None}
    if not seen:
        return Remark("nothing_fits", f"{nothing}. {more}")
    least, trial = min(seen.items())
    text = (
        f"{nothing}; the lowest peak was {format_bytes(least)}, of {_name(trial.configuration, aim)}, at "
        f"{format_speed(trial.samples_per_s)}. {more}"
    )
    return Remark("nothing_fits", text)


def _leaves_sizes_out(record: StudyRecord) -> bool:
    """Return whether there are batch sizes below those that are searched."""
    sizes, facts = record.spec.batch_sizes, record.facts
    can_vary = facts is not None and facts.batch_control.can_set and facts.batch_size is not None
    # By itself a search goes down to 1 where the script does not fit.
    return can_vary and sizes is not None and sizes[0] > 1


def does_not_fit(own: Trial | None, aim: Aim, beside: Comparison | None) -> Remark:
    """Say that the baseline does not fit, and by what; ``beside`` compares it with the answer."""
    limit, peak = aim.limit_text(), None if own is None else own.peak_bytes
    if own is not None and peak is not None and peak > aim.limit_bytes:
        trouble = f"needs {format_bytes(peak)}, more than {limit}"
        if beside is not None or peak <= aim.run_limit_bytes:
            rate = own.samples_per_s if beside is None else _both_figures(beside)[1].samples_per_s
            trouble = f"gives {format_speed(rate)} and {trouble}"
    elif own is not None and isinstance(own.outcome, OutOfMemory):
        trouble = f"runs out of memory within {format_bytes(aim.run_limit_bytes)}"
    elif own is not None and own.measured:
        trouble = f"only just fits {limit}: torch's allocator had to free memory and try again"
    else:
        trouble = "could not be measured"
    return Remark("baseline_does_not_fit", f"Your baseline {trouble}.")


def fits_instead(
    record: StudyRecord, best: Configuration, fastest_per_s: float, aim: Aim, beside: Comparison | None
) -> Remark:
    """Say what fits where the baseline does not; ``beside`` compares the two, where both were measured in turns."""
    figures = figures_of(record, best)
    assert figures is not None, "it is feasible, so it was measured"
    rate, needs = format_speed(figures.samples_per_s), format_bytes(figures.peaks.fit_bytes or 0)
    once = "" if repetitions_of(record.repeats, best) else ", measured once"
    found = f"{_name(best, aim)} gives {rate} within {needs}"
    if aim.seeks_memory:
        slower = f"no more than {format_share(1 - aim.slowest)} below the fastest found"
        found += f", the least memory at {slower} ({format_speed(fastest_per_s)})"
    if beside is not None:
        found += f", {beside.speedup:.2f}x the speed of your baseline"
    return Remark("fits_instead", sentence(f"{found}{once}."))


def _too_slow(best: Comparison, aim: Aim) -> str:
    repetitions = counted(best.repetitions, "repetition")
    stays = f"Your baseline stays: {_name(best.configuration, aim)} needs {_less_memory(best)} ({_peaks(best)})"
    speed = f"came to {best.speedup:.3f}x its samples per second ({_speeds(best)}, {repetitions})"
    if best.found_fast == "no_better":
        return f"{stays}, but {speed}, and no less than {aim.slowest:.3f}x is allowed."
    return (
        f"{stays} and {speed}. The repetitions vary too much to show at least {aim.slowest:.3f}x: give a larger "
        "--max-slowdown, or measure on a quieter machine."
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


def _between(comparison: Comparison, aim: Aim) -> str:
    if not aim.seeks_memory:
        return _speeds(comparison)
    return f"{_bound(comparison.peak_ratio_low)} to {_bound(comparison.peak_ratio_high)}"


def _figure(aim: Aim) -> str:
    return "the memory" if aim.seeks_memory else "the speed"


def _speeds(comparison: Comparison) -> str:
    return f"{_bound(comparison.speedup_low)} to {_bound(comparison.speedup_high)}"


def _bound(ratio: float | None) -> str:
    return "?" if ratio is None else format_ratio(ratio)
