"""Finalists measured in turns beside the baseline, and the winner's proof."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest

from autotune.records.outcome import Died, Measured, OutOfMemory, ScriptError
from autotune.records.study import Objective, StudySpec
from autotune.records.units import format_speed
from autotune.records.words import setting_words
from autotune.search.search import Search
from autotune.store.claims import Owner
from autotune.tuning.budget import Budget
from autotune.tuning.context import Context
from tests.fakes.landscape import ENVIRONMENT, MIB, measured
from tests.fakes.session import Session, new_landscape
from tests.fakes.store import InMemoryStore


def test_finalists_and_baseline_are_measured_in_turns_each_in_a_run_of_its_own(tmp_path):
    session = Session(tmp_path)
    record = session.tune()
    measuring = [run for run in session.launcher.runs if run.request.mode == "measure"]
    repetitions = measuring[-len(record.repeats) :]
    assert all(len(run.request.configurations) == 1 for run in repetitions)
    assert [run.request.configurations[0].key for run in repetitions] == [
        one.configuration.key for one in record.repeats
    ]
    orders = orders_of(record)
    assert len(orders) == 3
    assert orders[1] == orders[0][::-1]
    assert set(map(frozenset, orders)) == {frozenset(orders[0])}
    assert session.facts.baseline.key in orders[0]
    assert [repeat.repetition for repeat in record.repeats] == sorted(repeat.repetition for repeat in record.repeats)


def orders_of(record):
    """List what was measured in each repetition, in order."""
    repetitions = {}
    for one in record.repeats:
        repetitions.setdefault((one.confirmation, one.repetition), []).append(one.configuration.key)
    return list(repetitions.values())


def of_search(request):
    return request.mode == "measure" and request.may_fork and not request.server


def of_confirmation(request):
    return request.mode == "measure" and not of_search(request)


class Scattered:
    """Outcomes of which the repetitions of finalists scatter: now better than the baseline, now worse."""

    def __init__(self, *ratios):
        self.ratios = ratios
        self.seen = Counter()

    def __call__(self, configuration):
        landscape, run = self.session.landscape, self.session.launcher.runs[-1]
        outcome = landscape.measure(configuration)
        if not of_confirmation(run.request) or configuration.key == landscape.baseline.key:
            return outcome
        ratio = self.ratios[self.seen[configuration.key] % len(self.ratios)]
        self.seen[configuration.key] += 1
        rate = ratio * landscape.samples_per_s(landscape.baseline)
        return measured(rate, configuration.batch_size, outcome.measurement.peaks.reserved)


def scattered_session(folder, *ratios, **options):
    outcomes = Scattered(*ratios)
    outcomes.session = Session(folder, outcome_of=outcomes, **options)
    return outcomes.session


def test_repetitions_go_on_while_the_answer_is_open(tmp_path):
    record = scattered_session(tmp_path, 1.3, 0.97).tune()
    assert 3 < len(orders_of(record)) <= StudySpec.finalist_repetitions
    assert len({tuple(order) for order in orders_of(record)}) > 2, "not all repetitions have one of two orders"


def test_there_are_no_more_repetitions_than_were_asked_for(tmp_path):
    record = scattered_session(tmp_path, 1.3, 0.97, changes={"finalist_repetitions": 4, "max_trials": 30}).tune()
    assert len(orders_of(record)) == 4
    assert record.verdict.kind_of_answer == "baseline_best"
    assert record.verdict.comparisons[0].repetitions == 4
    again = Session(tmp_path / "short", changes={"finalist_repetitions": 2})
    assert len(orders_of(again.tune())) == 2


def test_where_nothing_was_better_on_a_busy_machine_the_best_of_it_is_measured_again(tmp_path):
    def outcome_of(configuration):
        outcome = landscape.measure(configuration)
        request = session.launcher.runs[-1].request
        if not of_search(request) or configuration.key == landscape.baseline.key or not isinstance(outcome, Measured):
            return outcome
        slow = measured(0.8 * own_per_s, configuration.batch_size, outcome.measurement.peaks.reserved)
        return Measured(dataclasses.replace(slow.measurement, contended=is_busy))

    landscape = new_landscape()
    own_per_s = landscape.samples_per_s(landscape.baseline)
    is_busy = True
    session = Session(tmp_path, landscape=landscape, outcome_of=outcome_of)
    record = session.tune()
    assert record.repeats
    assert record.verdict.kind_of_answer == "winner", "alone it is faster"
    is_busy = False
    session = Session(tmp_path / "quiet", landscape=landscape, outcome_of=outcome_of)
    record = session.tune()
    assert record.repeats == ()
    assert record.verdict.winner == landscape.baseline


def test_the_first_repetition_is_in_fresh_processes_and_each_later_one_is_forked_from_a_server_of_its_own(tmp_path):
    session = Session(tmp_path)
    record = session.tune()
    requests = [run.request for run in session.launcher.runs]
    last = len(record.repeats) + sum(request.mode == "verify" for request in requests)
    search, repetitions = requests[1:-last], [request for request in requests[-last:] if request.mode == "measure"]
    assert requests[0].mode == "discover"
    assert not requests[0].may_fork
    assert search
    assert all(request.may_fork and not request.server for request in search)
    assert not any(request.may_fork for request in requests if request.mode == "verify")
    servers = {}
    for request, repeat in zip(repetitions, record.repeats, strict=True):
        assert request.may_fork == (repeat.repetition > 0)
        servers.setdefault(repeat.repetition, set()).add(request.server)
    assert len(servers) >= 3
    assert servers.pop(0) == {""}
    assert all(len(names) == 1 for names in servers.values()), "a repetition's entrants share what a server has"
    assert len(set.union(*servers.values())) == len(servers), "no two repetitions do"


def test_a_confirmation_that_was_cut_short_is_begun_anew_and_a_whole_one_is_not(tmp_path):
    def before(run):
        if len(first.watcher.repetitions) == 2:
            first.interruption.finish.set()

    first = Session(tmp_path, before=before)
    assert len(first.tune().repeats) == 3

    second = first.again(before=lambda run: None)
    record = second.tune()
    confirmations = [repeat.confirmation for repeat in record.repeats]
    assert confirmations == [1] * 3 + [2] * (len(confirmations) - 3)
    assert len(confirmations) % 3 == 0
    assert record.verdict.kind_of_answer == "winner"

    assert second.again().tune().repeats == record.repeats


def test_new_finalists_are_measured_beside_the_baseline_once_more(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 2})
    first.tune()
    second = first.again()
    second.study.set_spec(dataclasses.replace(second.spec, max_trials=30))
    record = second.tune()
    confirmations = {repeat.confirmation for repeat in record.repeats}
    assert len(confirmations) > 1, "the second session found no other finalist: the test shows nothing"
    for confirmation in confirmations:
        keys = [repeat.configuration.key for repeat in record.repeats if repeat.confirmation == confirmation]
        assert keys.count(first.facts.baseline.key) == 3


def test_a_repetition_in_which_the_baseline_failed_is_made_up_for_by_another(tmp_path):
    seen = Counter()

    def outcome_of(configuration):
        seen[configuration.key] += 1
        if configuration.key == session.facts.baseline.key and seen[configuration.key] == 2:  # its first repetition
            return Died("killed")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of)
    record = session.tune()
    own = [repeat for repeat in record.repeats if repeat.configuration.key == session.facts.baseline.key]
    assert [repeat.outcome.kind for repeat in own] == ["died", "measured", "measured", "measured"]
    assert record.verdict.kind_of_answer == "winner"


def test_a_finalist_that_passes_the_limit_in_a_repetition_is_out_and_the_next_one_takes_its_place(tmp_path):
    seen = Counter()

    def outcome_of(configuration):
        seen[configuration.key] += 1
        if configuration.key != session.facts.baseline.key and seen[configuration.key] == 2 and not refused:
            refused.append(configuration.key)
            return OutOfMemory("out of memory")
        return session.landscape.measure(configuration)

    refused = []
    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 30})
    record = session.tune()
    repetitions = Counter(repeat.configuration.key for repeat in record.repeats)
    assert repetitions[refused[0]] == 1
    assert record.verdict.kind_of_answer == "winner"
    assert record.verdict.winner.key not in refused


@pytest.mark.parametrize("fails", ["out of memory", "over the limit", "died"])
def test_a_best_that_a_repetition_rules_out_sends_the_search_on(tmp_path, monkeypatch, fails):
    learnt = []
    monkeypatch.setattr(Search, "learn", lambda _, repeats: learnt.append([one.outcome for one in repeats]))
    limit_bytes = new_landscape().peak_bytes(new_landscape().baseline) - MIB

    def outcome_of(configuration):
        request = session.launcher.runs[-1].request
        outcome = session.landscape.measure(configuration)
        if of_confirmation(request) and refused in ([], [configuration.key]):
            refused[:] = [configuration.key]
            trials.append(len(session.watcher.trials))
            return failures[fails]
        return outcome

    failures = {
        "out of memory": OutOfMemory("out of memory"),
        "over the limit": measured(300.0, 16, limit_bytes + MIB),
        "died": Died("segmentation fault"),
    }
    refused, trials = [], []
    session = Session(tmp_path, outcome_of=outcome_of, changes={"memory_limit_bytes": limit_bytes, "max_trials": 30})
    record = session.tune()
    assert trials == trials[:1], "it is out with its first repetition"
    assert session.watcher.said.count("searching again") == 1
    first, second = learnt
    assert first == []
    assert failures[fails] in second, "the repetition that it failed"
    assert session.watcher.said.count("search ended") == 2
    assert record.verdict.winner.key not in refused
    assert record.verdict.stop_reason == session.watcher.reason


def doubting_the_fastest(monkeypatch, chance):
    """Have the fastest of a search fit again by a chance only; the list holds its key once the search has ended."""
    believed = Search._believed
    fastest = []

    def doubts(search):
        told = believed(search)
        fastest[:] = [max(told.per_s, key=told.per_s.get)]
        return dataclasses.replace(told, chances_to_fit={fastest[0]: chance})

    monkeypatch.setattr(Search, "_believed", doubts)
    return fastest


def test_the_best_of_a_search_that_may_not_fit_again_is_not_measured_again_but_named(tmp_path, monkeypatch):
    unsure = doubting_the_fastest(monkeypatch, 0.4)
    session = Session(tmp_path, changes={"max_trials": 10})
    record = session.tune()
    assert unsure[0] not in {repeat.configuration.key for repeat in record.repeats}
    assert record.verdict.kind_of_answer == "winner"
    (left_out,) = (one.configuration for one in record.trials if one.configuration.key == unsure[0])
    name = setting_words(left_out, session.facts.clusters)
    assert f"{name} was faster in its trial, at a peak of "[1:] in record.verdict.remarks[0].text


@pytest.mark.parametrize(("confirmations", "is_measured"), [(2, True), (1.5, False), (1, False)])
def test_with_time_for_one_confirmation_only_who_is_likely_to_fit_is_measured(
    tmp_path, monkeypatch, confirmations, is_measured
):
    unlikely = doubting_the_fastest(monkeypatch, 0.7)
    monkeypatch.setattr(Context, "confirming_s", lambda *_: 60.0)
    monkeypatch.setattr(Budget, "holds", lambda _, seconds: seconds <= confirmations * 60.0)
    record = Session(tmp_path, changes={"max_trials": 10}).tune()
    assert record.verdict.kind_of_answer == "winner"
    assert (unlikely[0] in {repeat.configuration.key for repeat in record.repeats}) == is_measured


def test_a_confirmation_ends_once_no_finalist_may_win_any_more(tmp_path):
    slow = set()

    def outcome_of(configuration):
        outcome = session.landscape.measure(configuration)
        request = session.launcher.runs[-1].request
        in_confirmation = of_confirmation(request)
        if in_confirmation and configuration.key != session.facts.baseline.key:
            slow.add(configuration.key)
            return measured(0.9 * baseline_per_s, 16, outcome.measurement.peaks.reserved)
        return outcome

    landscape = new_landscape()
    baseline_per_s = landscape.samples_per_s(landscape.baseline)
    session = Session(tmp_path, landscape=landscape, outcome_of=outcome_of, changes={"max_trials": 30})
    record = session.tune()
    assert record.verdict.kind_of_answer == "baseline_best"
    assert len(record.repeats) == 3 * (1 + len(slow)), "three repetitions that each of them lost by far tell all"
    assert slow
    assert session.again().tune().repeats == record.repeats, "so the next session need not begin it anew"


def test_where_there_is_nothing_to_beat_the_trial_was_the_first_repetition(tmp_path):
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    session = Session(tmp_path, landscape=landscape, changes={"memory_limit_bytes": limit})
    record = session.tune()
    repetitions = Counter(repeat.configuration.key for repeat in record.repeats)
    assert repetitions[record.verdict.winner.key] == 2
    assert session.again().tune().repeats == record.repeats


def test_a_runner_up_that_was_beaten_by_one_that_then_failed_gets_its_repetitions(tmp_path):
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    repetitions = Counter()

    def outcome_of(configuration):
        request = session.launcher.runs[-1].request
        if of_confirmation(request):
            repetitions[configuration.key] += 1
            first = next(iter(repetitions))
            if configuration.key == first and repetitions[first] == 2:
                return OutOfMemory("out of memory")
        return landscape.measure(configuration)

    session = Session(
        tmp_path, landscape=landscape, outcome_of=outcome_of, changes={"memory_limit_bytes": limit, "max_trials": 30}
    )
    record = session.tune()
    (failed, *_) = repetitions
    assert repetitions[failed] == 2, "no second repetition failed: the test shows nothing"
    winner = [one for one in record.repeats if one.configuration.key == record.verdict.winner.key]
    assert record.verdict.winner.key != failed
    assert len({one.repetition for one in winner if one.confirmation == winner[-1].confirmation}) == 2


def test_a_confirmation_that_had_to_move_to_another_machine_is_begun_anew_there(tmp_path):
    """Guards a comparison of two machines where a node of a cluster is lost."""
    whole = Session(tmp_path / "whole")
    whole.tune()
    first_repetition = next(at for at, run in enumerate(whole.launcher.runs[1:], 1) if of_confirmation(run.request))

    def move(run):
        if run == first_repetition + 3:
            session.launcher.environment = dataclasses.replace(ENVIRONMENT, hostname="elsewhere")

    session = Session(tmp_path / "moved", before=move)
    record = session.tune()

    machines = {}
    for one in record.repeats:
        machines.setdefault(one.confirmation, []).append(one.environment.hostname)
    assert machines[1] == ["here"] * 3
    assert set(machines[2]) == {"elsewhere"}
    assert len(machines[2]) == len(whole.study.record().repeats)
    assert record.verdict.winner == whole.study.record().verdict.winner


def test_a_confirmation_of_another_live_process_is_left_to_it(tmp_path):
    other = dataclasses.replace(Owner.current(), hostname="elsewhere", machine="another")
    session = Session(tmp_path)
    InMemoryStore(session.database, owner=other).open("a study").begin_confirmation()
    record = session.tune()
    assert record.repeats == ()
    assert record.verdict is None, "the answer is the other's to give"


def test_a_baseline_over_the_limit_is_no_finalist(tmp_path):
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    session = Session(tmp_path, landscape=landscape, changes={"memory_limit_bytes": limit})
    record = session.tune()
    assert record.verdict.kind_of_answer == "baseline_does_not_fit"
    assert session.facts.baseline.key != record.verdict.winner.key


def test_a_baseline_over_the_limit_is_measured_beside_the_best_without_the_limit(tmp_path):
    def outcome_of(configuration):
        outcome = landscape.measure(configuration)
        request = session.launcher.runs[-1].request
        if configuration.key != landscape.baseline.key or request.mode != "measure":
            return outcome
        limits.append(request.memory_limit_bytes)
        return measured(2 * landscape.samples_per_s(configuration), 16, outcome.measurement.peaks.reserved)

    landscape, limits = new_landscape(), []
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    session = Session(tmp_path, landscape=landscape, outcome_of=outcome_of, changes={"memory_limit_bytes": limit})
    record = session.tune()
    assert limits == [ENVIRONMENT.device_memory_bytes] * 2
    verdict = record.verdict
    (compared,) = (one for one in verdict.comparisons if one.configuration.key == verdict.winner.key)
    assert compared.repetitions == 2
    assert f"{compared.speedup:.2f}x the speed of your baseline" in verdict.reason.text
    assert f"gives {format_speed(compared.baseline_figures.samples_per_s)} and needs" in verdict.remarks[0].text
    assert session.again().tune().repeats == record.repeats


def test_repetitions_that_tell_are_not_measured_a_second_time_for_want_of_time(tmp_path, monkeypatch):
    """Guards a confirmation of the best alone, begun again where there is no time for the one that seems faster now."""

    def outcome_of(configuration):
        outcome = landscape.measure(configuration)
        if configuration.key == landscape.baseline.key:
            return outcome
        # All are about as fast in their trials, so that the best has a runner-up.
        rate = 100.0 if of_confirmation(session.launcher.runs[-1].request) else 400.0 + configuration.batch_size
        return measured(rate, configuration.batch_size, outcome.measurement.peaks.reserved)

    def confirming_s(context, record, candidates):
        return 60.0 * len(candidates) if not all(context.is_told(record, one) for one in candidates) else 0.0

    monkeypatch.setattr(Context, "confirming_s", confirming_s)
    monkeypatch.setattr(Budget, "holds", lambda _, seconds: seconds <= (0.0 if session.watcher.repetitions else 60.0))
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    changes = {"memory_limit_bytes": limit, "engine": "eager"}
    session = Session(tmp_path, landscape=landscape, outcome_of=outcome_of, changes=changes)
    record = session.tune()
    assert len([one for one in record.trials if one.samples_per_s > 400.0]) > 1, "nothing seems faster"
    assert {one.confirmation for one in record.repeats} == {1}
    assert record.verdict.needed_s is None
    assert "no time" not in session.watcher.said, "there is an answer"


def test_a_baseline_whose_allocator_thrashed_is_no_finalist_though_its_peak_fits(tmp_path):
    def outcome_of(configuration):
        outcome = landscape.measure(configuration)
        if configuration.key != landscape.baseline.key:
            return outcome
        return Measured(dataclasses.replace(outcome.measurement, allocator_retries=1))

    landscape = new_landscape()
    session = Session(tmp_path, landscape=landscape, outcome_of=outcome_of)
    record = session.tune()
    assert record.verdict.kind_of_answer == "baseline_does_not_fit"
    assert record.repeats
    assert landscape.baseline.key != record.verdict.winner.key


# -- the proof


def modes(session):
    return [run.request.mode for run in session.launcher.runs]


def test_one_that_is_not_exact_rules_out_nobody_for_being_slower(tmp_path):
    def is_exact(configuration):
        if configuration.plans and len(refuted) < 2:
            refuted.add(configuration.key)
        return configuration.key not in refuted

    refuted = set()
    landscape = new_landscape()
    limit = landscape.peak_bytes(landscape.baseline) - MIB
    changes = {"memory_limit_bytes": limit, "objective": Objective("memory", 0.1)}
    session = Session(tmp_path, landscape=landscape, changes=changes, is_exact=is_exact)
    record = session.tune()
    answers = [proof.answer for proof in session.watcher.proofs]
    assert answers.count("inexact") == 2
    assert len({repeat.confirmation for repeat in record.repeats}) <= 1 + answers.count("inexact")
    assert is_exact(record.verdict.winner)


def test_a_winner_with_plans_is_proven_before_it_is_one(tmp_path):
    session = Session(tmp_path, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert verdict.kind_of_answer == "winner"
    assert verdict.winner.engine == "aot"
    assert (proof.configuration, proof.answer) == (verdict.winner, "exact")
    assert session.watcher.proofs == [proof]
    assert modes(session)[-2:] == ["verify"] * 2
    assert session.study.record().verdict == verdict


def test_what_computes_something_else_must_not_win(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 20}).tune().verdict.winner
    session = Session(
        tmp_path / "other",
        changes={"max_trials": 20},
        is_exact=lambda configuration: configuration.plans != first.plans,
    )
    verdict = session.tune().verdict
    assert verdict.winner.key != first.key
    refuted = next(proof for proof in verdict.proofs if proof.configuration.key == first.key)
    assert refuted.answer == "inexact"
    assert f"{setting_words(first, session.facts.clusters)} may not win. {refuted.statement}"[1:] in verdict.sentences
    assert first.key in {one.configuration.key for one in verdict.comparisons}, "its repetitions stay in the table"


def test_where_no_plan_is_exact_the_answer_has_none(tmp_path):
    session = Session(tmp_path, changes={"max_trials": 20}, is_exact=lambda configuration: not configuration.plans)
    record = session.tune()
    verdict = record.verdict
    planned = [one.configuration for one in record.trials if one.measured and one.configuration.plans]
    assert (verdict.kind_of_answer, verdict.winner.plans) == ("baseline_best", ())
    assert [proof.answer for proof in verdict.proofs] == ["inexact"] * 3
    assert len(planned) > 3, "there is one that was not proven, and does not win"
    assert verdict.remarks[-1].text == "So no other setting that changes how the script computes may win either."


def test_what_was_refuted_stays_refuted_in_the_next_session_and_costs_no_run(tmp_path):
    first = Session(tmp_path, changes={"max_trials": 20}, is_exact=lambda configuration: not configuration.plans)
    before = first.tune().verdict
    second = first.again()
    after = second.tune().verdict
    assert "verify" not in modes(second)
    assert (after.winner, after.proofs) == (before.winner, before.proofs)


def test_a_batch_that_only_plans_make_fit_is_proven_at_the_scripts_own_size(tmp_path):
    def outcome_of(configuration):
        mode = session.launcher.runs[-1].request.mode
        if mode == "verify" and not configuration.plans and configuration.batch_size > 16:
            return OutOfMemory(cause="out of memory")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert proof.answer == "exact"
    assert f"for batch {verdict.winner.batch_size} there is not enough memory without plans" in proof.statement
    assert {run.request.configurations[0].batch_size for run in session.launcher.runs[-2:]} == {16}


def test_a_proof_that_could_not_be_made_is_said_and_costs_nobody_the_win(tmp_path):
    def outcome_of(configuration):
        if session.launcher.runs[-1].request.mode == "verify":
            return ScriptError(cause="it runs only so often")
        return session.landscape.measure(configuration)

    session = Session(tmp_path, outcome_of=outcome_of, changes={"max_trials": 20})
    verdict = session.tune().verdict
    (proof,) = verdict.proofs
    assert (verdict.kind_of_answer, proof.answer) == ("winner", "unknown")
    assert proof.statement == "Equivalence unknown: the script failed in the runs for it: it runs only so often"


def test_a_proof_that_was_interrupted_is_made_by_the_next_session(tmp_path):
    def before(run):
        if session.launcher.runs[-1].request.mode == "verify":
            session.interruption.finish.set()

    session = Session(tmp_path, before=before, changes={"max_trials": 20})
    assert session.tune().verdict.proofs == ()
    assert modes(session).count("verify") == 1, "nothing new is started"
    second = session.again(before=lambda run: None)
    (proof,) = second.tune().verdict.proofs
    assert proof.answer == "exact"
