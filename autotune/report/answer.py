"""The answer in sentences, and what it rests on: what stands on the first screen, and what the terminal ends with."""

from __future__ import annotations

import math

from ..records.choices import converted_by
from ..records.configuration import Configuration, keeps_batch_size
from ..records.engines import COMPILING_ENGINES, ENGINES
from ..records.outcome import OUTCOMES
from ..records.printable import first_line, shell_word
from ..records.proof import Proof
from ..records.units import format_bytes, format_ratio, format_share, format_speed
from ..records.words import joined, sentence, setting_words
from ..verdict.gain import Kind
from .record import Finalist, Report, ReportedAnswer, ReportedSetting


def verdict_sentence(report: Report) -> str:
    """Say the answer in one sentence, or how far the study is."""
    if report.verdict is not None:
        return report.verdict.sentences
    done = sum(point.outcome != "running" for point in report.points)
    if report.environment is None:
        return "Nothing is known yet: discovery has not finished."
    return f"No answer yet: {done} trial{'' if done == 1 else 's'} so far{_leader(report)}."


def _leader(report: Report) -> str:
    """Say what is ahead of the script while a study runs, each measured once; empty if nothing is."""
    own, fit = report.baseline, [one for one in report.points if one.may_win and one.samples_per_s]
    if own is None or not fit:
        return ""
    if report.settings.objective.goal == "memory":
        least = min(fit, key=lambda one: one.peak_bytes or math.inf)
        is_ahead = not least.is_baseline and (least.peak_bytes or math.inf) < (own.peak_bytes or 0)
        return f", the smallest peak {format_bytes(least.peak_bytes or 0)} ({least.configuration})" if is_ahead else ""
    fastest = max(fit, key=lambda one: one.samples_per_s or 0.0)
    if fastest.is_baseline or (fastest.samples_per_s or 0.0) <= own.samples_per_s:
        return ""
    return f", the fastest {format_speed(fastest.samples_per_s or 0.0)} ({fastest.configuration})"


def headline(report: Report) -> str:
    """Say the answer for who reads one line: what to do and what it brings, in words; codes stand below it."""
    winner, verdict = report.winner, report.verdict
    if verdict is not None and verdict.answer == "baseline_best":
        return verdict.reason.text
    if verdict is None or winner is None or verdict.answer == "nothing_fits":
        return verdict_sentence(report)
    own, runs = report.batch_size, "train" if report.target == "script" else "run"
    does = [f"recompute {winner.recomputed}"] if winner.recomputed else []
    if not keeps_batch_size(winner.batch_size, own):
        does.append(f"{runs} {winner.batch_size}{f' instead of {own}' if own else ''} at a time")
    if winner.configuration.engine in COMPILING_ENGINES:
        does.append(f"compile with {winner.configuration.engine}")
    if winner.configuration.choices and report.target == "model":
        does.append(f"set {joined(winner.configuration.choices)}")
    else:
        does += [_turned(choice) for choice in winner.configuration.choices]
    if not does:
        return verdict_sentence(report)
    if not verdict.is_confirmed:
        limit = report.limit_bytes if report.target_bytes is None else report.target_bytes
        why = ""
        if verdict.answer == "baseline_does_not_fit" and limit is not None:
            why = f"Your {report.target} does not fit in {format_bytes(limit)}. "
        return f"{why}Best so far, not confirmed yet: {joined(does)}: {_seen_so_far(report, winner)}"
    said = " ".join(filter(None, [f"{joined(does)}: {_bought(report, winner)}.", _checked(report)]))
    if verdict.answer == "baseline_does_not_fit":
        said += f" Your {report.target} as it is does not fit."
    return sentence(said)


def _turned(choice: str) -> str:
    """Say what to do for a choice while a model trains, which is on or off."""
    name, _, value = choice.partition("=")
    return f"turn {name} {'on' if int(value) else 'off'}"


def answer_below(report: Report) -> str:
    """Say under the headline what the answer rests on, and what else bears on it."""
    verdict = report.verdict
    if verdict is None or headline(report) == verdict_sentence(report):
        return ""
    return " ".join(filter(None, [_evidence(report, verdict), *(one.text for one in verdict.remarks)]))


def _evidence(report: Report, verdict: ReportedAnswer) -> str:
    if verdict.answer == "baseline_best":
        return ""  # the headline says it
    is_memory = report.settings.objective.goal == "memory"
    if verdict.answer == "baseline_does_not_fit" and is_memory:
        return verdict.reason.text  # how fast the fastest is
    compared = None if report.winner is None else _compared(report, report.winner)
    if compared is None or compared.speedup_low is None or compared.speedup_high is None:
        return ""
    turns, than = f"in {compared.repetitions} repetitions", f"your {report.target}"
    if verdict.answer == "winner":
        speed = f"{format_ratio(compared.speedup_low)} as fast"
        if not is_memory:
            return f"At least {speed} as {than}, {turns}."
        most = format_ratio(compared.peak_ratio_high or math.inf)
        return f"At most {most} the memory of {than}, and at least {speed}, {turns}."
    if verdict.answer != "undecided":
        return ""
    low, high, what = compared.speedup_low, compared.speedup_high, f"as fast as {than}"
    if is_memory:
        low, high, what = compared.peak_ratio_low or 0.0, compared.peak_ratio_high or math.inf, f"the memory of {than}"
    return f"It is {format_ratio(low)} to {format_ratio(high)} {what} {turns}."


def _compared(report: Report, setting: ReportedSetting) -> Finalist | None:
    return next((one for one in report.finalists if one.text == setting.text), None)


def _seen_so_far(report: Report, winner: ReportedSetting) -> str:
    """Give both speeds of what is not confirmed, without a factor, which nobody should take away."""
    own = report.baseline
    against = "" if own is None else f" against your {report.target}'s {format_speed(own.samples_per_s)}"
    times = "measured once" if winner.repetitions <= 1 else f"in {winner.repetitions} repetitions"
    return f"{format_speed(winner.samples_per_s)}{against}, {times}."


def _bought(report: Report, winner: ReportedSetting) -> str:
    compared = _compared(report, winner)
    within = "" if winner.peak_bytes is None else f" at a peak of {format_bytes(winner.peak_bytes)}"
    if compared is None:
        return f"{format_speed(winner.samples_per_s)}{within}"
    if report.verdict is not None and report.verdict.answer == "baseline_does_not_fit":
        beside = f", {compared.speedup:.2f}x your {report.target}'s speed" if compared.repetitions else ""
        return f"{format_speed(winner.samples_per_s)}{within}{beside}"
    if report.settings.objective.goal == "memory":
        return f"{compared.peak_ratio:.2f}x the memory at {compared.speedup:.2f}x the samples per second"
    return f"{compared.speedup:.2f}x the samples per second{within}"


def _checked(report: Report) -> str:
    """Say what was shown equal to the script at the same batch size; empty where nothing was."""
    proof, winner = None if report.verdict is None else report.verdict.proof, report.winner
    if proof is None or winner is None or proof.answer not in ("exact", "close"):
        return ""
    what = ENGINES[winner.configuration.engine].computes
    where = "" if keeps_batch_size(winner.batch_size, report.batch_size) else " at that batch size"
    if off := _off(proof):
        return f"Checked: {what} are within {off} of the model's own{where}."
    if proof.answer == "close":
        return f"Checked: {what} are equal up to rounding{where}."
    if not proof.equal_to_script:
        # What the engine changes by itself, without any plan, the sentence of the proof tells.
        return f"Checked: recompute changes no bit of the {what}."
    return f"Checked: {what} are bit-identical{where}."


def badge_words(report: Report) -> tuple[str, bool]:
    """Return what was proven, in a few words, and whether it was; empty where there is nothing to prove."""
    if report.winner is None or report.verdict is None or report.winner.configuration.is_untouched:
        return "", False
    proof = report.verdict.proof
    what = ENGINES[report.winner.configuration.engine].computes
    if proof is None or proof.answer not in ("exact", "close"):
        return f"{what} {'not checked yet' if proof is None else 'not shown equal'}", False
    if off := _off(proof):
        return f"{what} within {off}", True
    return f"{what if proof.answer == 'close' or proof.equal_to_script else 'recompute'} checked", True


def _off(proof: Proof) -> str:
    """Return how far a converted model's outputs are from its own; empty for another model, or an unknown size."""
    configuration = proof.configuration
    sizes = [one.relative for one in proof.to_script if one.group == "outputs" and one.relative is not None]
    converts = converted_by(configuration.engine, configuration.choices) is not None
    return format_share(max(sizes)) if converts and sizes and not proof.equal_to_script else ""


def trust_sentences(report: Report) -> tuple[str, ...]:
    """Say what the answer rests on: repetitions, noise and other programs; empty without an answer."""
    winner, baseline = report.winner, report.baseline
    if winner is None or report.verdict is None:
        return ()
    has_turns = baseline is not None and baseline.repetitions > 1 and baseline.text != winner.text
    turns = f" in turns with your {report.target}" if has_turns else ""
    said = [f"measured in {winner.repetitions} repetitions{turns}" if winner.repetitions > 1 else "measured once"]
    if baseline is not None and baseline.repetitions > 1:
        spread = (baseline.samples_per_s_high - baseline.samples_per_s_low) / baseline.samples_per_s
        said.append(f"your {report.target}'s repetitions lie within {format_share(spread)}")
    answer = report.verdict
    busy, runs = answer.num_contended, "runs of the confirmation" if answer.measured_in == "repetitions" else "trials"
    if answer.num_measured > 1:
        said.append(f"other programs were busy in {busy or 'none'} of {answer.num_measured} {runs}")
    else:
        said.append(f"{'' if busy else 'no '}other programs were busy meanwhile")
    return tuple(said)


def keep_sentence(report: Report) -> str:
    """Say that nothing is to be changed, where the answer is the script as it is; else empty."""
    winner, own = report.winner, report.baseline
    if winner is None or own is None or winner.text != own.text:
        return ""
    keep = "Unless you compile, keep" if compiled_sentence(report) else "Keep"
    return f"{keep} running your {report.target} as you do. The bundle has the measurements, and changes nothing."


def confirm_command(report: Report) -> str:
    """Return the command that has the answer confirmed; empty where it is, or where there is none."""
    if report.winner is None or report.verdict is None or report.verdict.is_confirmed:
        return ""
    return f"autotune resume {shell_word(report.study.name)}"


def gain_sentences(report: Report) -> tuple[str, ...]:
    """Say where the winner's gain comes from, in parts; empty where there is none to tell."""
    gain = report.gain
    if gain is None:
        return ()
    parts, is_memory, of_winner = gain.parts, gain.quantity == "memory", _kinds(report)

    def words(configuration: Configuration) -> str:
        return setting_words(configuration, report.plans)

    told = [[of_winner[kind] for kind in part.kinds] for part in parts]
    sentences = []
    if len(parts) > 1:
        whole = f"{gain.factor:.2f}x the {'memory' if is_memory else 'samples/s'}"
        each = ", ".join(f"{part.factor:.2f}x from {joined(names)}" for part, names in zip(parts, told, strict=True))
        sentences.append(f"In parts, each measured once in the search ({whole} there): {each}.")
    elif len(told[0]) == 1:
        sentences.append(f"All of this comes from {told[0][0]}.")
    for part, names in zip(parts, told, strict=True):
        if len(names) > 1:
            why = "; ".join(f"{words(one.configuration)}: {_ended(one.outcome)}" for one in gain.missing)
            apart = f"{', how much from '.join(names[:-1])} and how much from {names[-1]}"
            sentences.append(f"How much of {part.factor:.2f}x is from {apart} is not known ({why}).")
    unfit = [words(part.reached) for part in parts if not part.fits]
    sentences += [f"{sentence(one)} does not fit by itself." for one in unfit]
    plain = gain.without_recompute
    if plain is not None and (unfit or gain.missing) and report.target == "script":
        best, (setting, factor) = "needs less memory" if is_memory else "was faster", plain
        if gain.num_without_recompute == 0:
            sentences.append(f"Without recompute only your {report.target}'s own setting was tried.")
        elif report.baseline is not None and setting.key == report.baseline.configuration.key:
            sentences.append(f"Without recompute nothing that was tried and fits {best} than your {report.target}.")
        else:
            best = "smallest" if is_memory else "fastest"
            sentences.append(f"Without recompute the {best} trial that fits was {words(setting)}, at {factor:.2f}x.")
    return tuple(sentences)


def _ended(outcome: str) -> str:
    if not outcome:
        return "not tried"
    return "ran out of memory" if outcome in OUTCOMES and OUTCOMES[outcome].for_memory else "failed"


def _kinds(report: Report) -> dict[Kind, str]:
    assert report.winner is not None, "there is no gain without one"
    configuration, own = report.winner.configuration, report.batch_size
    return {
        "batch_size": f"the batch size ({configuration.batch_size} instead of {own})",
        "compilation": f"engine {configuration.engine}",
        "choices": " ".join(configuration.choices),
        "recompute": "recompute",
    }


def compiled_sentence(report: Report) -> str:
    """Say what compiling would bring that the study was not allowed; empty where one run of it showed no gain."""
    run = report.compiled
    if run is None or run.gain is None:
        return ""
    brings = f"gave about {run.gain:.2g}x as many samples per second as the answer"
    if report.settings.objective.goal == "memory":
        brings = f"needed about {1 / run.gain:.2g}x the answer's memory"
    answer = () if report.winner is None else report.winner.configuration.choices
    made = [choice.partition("=")[0] for choice in answer]
    allow = ",".join(dict.fromkeys([*report.settings.choices, *made, run.choice]))
    return (
        f"{sentence(run.words)} {brings} (1 run): run the same command with --allow {allow}, "
        "as a new study, to search for the best."
    )


def uncompiled_sentence(report: Report) -> str:
    """Say why nobody knows what compiling would bring, where it was tried; empty where somebody does."""
    run = report.compiled
    if run is None or not run.cause:
        return ""
    return f"The gain from compiling is unknown, because its run failed: {first_line(run.cause)}"


def proof_sentence(report: Report) -> str:
    """Say whether the winner computes what the script or the model does; empty where there was nothing to compare."""
    verdict, winner = report.verdict, report.winner
    if verdict is None or winner is None or winner.configuration.is_untouched:
        return ""
    if verdict.proof is not None:
        return verdict.proof.statement
    return f"Not checked yet: its {ENGINES[winner.configuration.engine].computes} were not compared."
