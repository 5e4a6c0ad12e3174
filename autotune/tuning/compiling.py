"""Compiling where a study was not allowed it: one run of the answer's setting, compiled, tells what it would bring."""

from __future__ import annotations

from dataclasses import replace

from ..errors import AutotuneError
from ..launch.requests import trial_request
from ..records.chosen import engine_choices
from ..records.configuration import Configuration
from ..records.engines import Engine
from ..records.facts import Facts
from ..records.figures import figures_of
from ..records.plan import ALL, RECOMPUTE, Plan
from ..records.study import CompiledRun, Verdict
from .context import Context


def try_compiled(context: Context, verdict: Verdict, known: CompiledRun | None) -> CompiledRun | None:
    """Run the answer's setting once more, compiled, if that was not allowed, may work, and there is time for it.

    Whatever becomes of that run, it is none of the study's: a failure is told and changes nothing.
    """
    spec, facts, costs, answer = context.study.spec, context.facts, context.budget.costs, verdict.winner
    if answer is None or verdict.kind_of_answer == "undecided" or verdict.needed_s is not None:
        return None
    if known is not None and known.answer.key == answer.key:
        return known
    offered = (one for one in engine_choices(spec.engine).values() if one.name not in spec.choices)
    choice = next((one for one in offered if not one.refusal_for(facts)), None)
    if choice is None or not context.budget.holds(costs.compiled_s(answer, choice.engine)):
        return None
    figures = figures_of(context.snapshot.record, answer)
    room_bytes = context.aim.limit_bytes - ((figures.peaks.fit_bytes if figures else None) or 0)
    configuration = compiled_setting(answer, choice.engine, facts, room_bytes)
    context.watcher.compiling(configuration)
    # As in a trial no kernels are searched, which takes minutes.
    request = trial_request(
        spec, facts, (configuration,), context.limit_bytes, measuring=context.measuring, kernel_search=False
    )
    try:
        result = context.run_one(request, "compiled", "compiled")
    except AutotuneError as error:
        context.watcher.compiled(configuration, None, reason=str(error))
        return None
    outcome = None if result is None else result.outcomes[0]
    is_stopped = context.interruption.finish.is_set()
    reason = "the study was stopped" if is_stopped else "that run took longer than the time that was left"
    context.watcher.compiled(configuration, outcome, reason=reason)
    return None if outcome is None else CompiledRun(choice.name, answer, configuration, outcome)


def compiled_setting(answer: Configuration, engine: Engine, facts: Facts, room_bytes: int) -> Configuration:
    """A setting under an engine that compiles, with those of its plans that have the same names there: blocks.

    Where memory may have no room for what the others save, all blocks are recomputed in their place.
    """
    rows = {(row.cluster_id, row.strategy): row for row in facts.clusters}
    found = [(plan, rows.get((plan.cluster, plan.strategy))) for plan in answer.plans]
    blocks = [plan for plan, row in found if row is not None and row.is_layer]
    others = [(plan.applies_to(row.frequency) / row.frequency, row) for plan, row in found if row and not row.is_layer]
    own = facts.baseline.batch_size
    scale = answer.batch_size / own if own and answer.batch_size else 1.0
    if scale * sum(share * row.saving_bytes for share, row in others) > room_bytes:
        layers = sorted((row for row in facts.clusters if row.is_layer), key=lambda row: -row.saving_bytes)
        largest = [Plan(row.cluster_id, RECOMPUTE, ALL) for row in layers[:1]]
        blocks = [Plan(plan.cluster, plan.strategy, ALL) for plan in blocks] or largest
    return replace(answer, engine=engine, plans=tuple(blocks))
