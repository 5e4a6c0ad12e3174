"""`autotune fit`"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from ..errors import UsageError
from ..records.cards import Card
from ..records.codec import to_json
from ..records.engines import ENGINES
from ..records.study import StudySpec
from . import options
from .command import make_app, print_json


def fit(
    context: typer.Context,
    script: options.ScriptArgument,
    arguments: options.ArgumentsArgument = None,
    is_module: options.ModuleOption = False,
    cards: options.CardsOption = None,
    look_ahead: options.LookAheadOption = 0,
    memory_limit_bytes: options.MemoryLimitOption = None,
    batch_sizes: options.BatchSizesOption = None,
    own_batch_size: options.OwnBatchSizeOption = None,
    engine: options.EngineOption = StudySpec.engine,
    python: options.PythonOption = None,
    devices: options.DeviceOption = None,
    start_timeout_s: options.StartTimeoutOption = None,
    trial_timeout_s: options.TrialTimeoutOption = None,
    shapes: options.ShapeOption = None,
    inputs: options.InputsOption = None,
    scratch: options.ScratchOption = False,
    leaves_files: options.LeaveFilesOption = False,
    json: options.JsonOption = False,
) -> None:
    """Run a script for a few steps, and predict which batch sizes fit, and with which plans.

    With --for nothing is computed: the script's first steps are followed by the sizes of its tensors alone.
    """
    from .. import pipeline
    from ..report.build import describe_facts
    from ..report.sentences import fit_sentence
    from ..report.tables import fit_table
    from ..tuning.budget import Budget
    from .live.display import Display
    from .local_launcher import interruption, prepare_one_run
    from .spec import spec_of
    from .tables import make_console, print_changes, print_table

    spec = spec_of(context.params)
    if cards:
        _fit_cards(spec, cards, look_ahead, as_json=json)
        return
    if look_ahead:
        raise UsageError("--look-ahead goes together with --for", hint="name a GPU, as in --for a100-40g")
    launcher, runs = prepare_one_run("fit", spec)
    with interruption() as interrupted, Display(make_console(), spec, interrupted) as display:
        budget = Budget(spec.time_budget_s, interrupted)
        facts, limit_bytes, fits = pipeline.fit(
            spec, launcher=launcher, watcher=display, interruption=interrupted, budget=budget, runs=runs
        )
    print_changes(make_console(), launcher.changes)
    target = ENGINES[spec.engine].target
    told = fit_sentence(fits, limit_bytes=limit_bytes, clusters=facts.clusters, target=target)
    if json:
        head = {"sentences": [told], "limit_bytes": limit_bytes, "fits": to_json(fits)}
        print_json({**head, **to_json(describe_facts(facts))})
    else:
        console = make_console(stderr=False)
        console.print(f"\n{told}\n", soft_wrap=True)
        if fits:
            print_table(console, fit_table(fits, target=target))
            run = f"None of it was run but the {target} as it is."
            console.print(f"\n{run} `autotune run` measures and proves the best.")
    if interrupted.finish.is_set():
        raise typer.Exit(130)


def _fit_cards(spec: StudySpec, cards: Sequence[Card], look_ahead: int, *, as_json: bool) -> None:
    """Tell what fits cards that this machine need not have."""
    from .. import pipeline
    from ..report.batches import batch_table
    from ..report.cards import cards_sentences, cards_table
    from .live.run_count import RunCount
    from .local_launcher import interruption, prepare_one_run
    from .tables import make_console, print_changes, print_table

    if ENGINES[spec.engine].target != "script":
        raise UsageError("--for is for scripts that train", hint="leave it out to run the model on this machine")
    given = {"--memory-limit": spec.memory_limit_bytes, "--batch-sizes": spec.batch_sizes, "--devices": spec.devices}
    for option, value in given.items():
        if value:
            raise UsageError(f"--for does not go together with {option}", hint=f"leave {option} out")
    launcher, runs = prepare_one_run("fit", spec)
    make_console().print("Following the unmodified script's first steps by the sizes of its tensors", style="dim")
    with interruption() as interrupted, RunCount(make_console(), interrupted) as count:
        traced, fits = pipeline.fit_cards(
            spec,
            cards,
            launcher=launcher,
            progress=count.progress,
            interruption=interrupted,
            runs=runs,
            look_ahead=look_ahead,
        )
    print_changes(make_console(), launcher.changes)
    if as_json:
        print_json(
            {
                "sentences": cards_sentences(traced, fits),
                "batch_size": traced.batch_size,
                "asked": traced.asked,
                "asked_integers": traced.asked_integers,
                "notes": traced.notes,
                "ahead": to_json(traced.ahead),
                "fits": to_json(fits),
            }
        )
    else:
        console = make_console(stderr=False)
        first, *others = cards_sentences(traced, fits)
        console.print(f"\n{first}\n", soft_wrap=True)
        print_table(console, cards_table(traced, fits))
        if fits[0].batches:
            console.print()
            print_table(console, batch_table(fits[0]))
        console.print()
        for sentence in others:
            console.say(sentence)
    if interrupted.finish.is_set():
        raise typer.Exit(130)


app = make_app(fit)
