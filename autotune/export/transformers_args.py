"""A setting as arguments of transformers' ``TrainingArguments``, as far as the installed version has them."""

from __future__ import annotations

from ..errors import UsageError
from ..records.configuration import Configuration
from ..records.facts import Facts, Located
from ..records.plan import NONE
from ..records.words import joined
from .expressing import Blocks, Expressed, Refusal
from .heading import Heading

USAGE = "TrainingArguments(..., **ARGUMENTS)"
_SWITCHES = ("activation_checkpointing", "gradient_checkpointing")


def express(configuration: Configuration, facts: Facts, located: Located) -> Expressed:
    """Express the plans by transformers' own switch; UsageError where the script does not train by a Trainer."""
    if located.trainer_arguments is None:
        raise UsageError(
            "--as transformers writes arguments for transformers' Trainer, and the script does not train by one",
            hint="--as torch writes plain code for any model",
        )
    plans = [plan for plan in configuration.plans if plan.strategy != NONE]
    switched = {one.class_name: one for one in located.blocks if one.checkpoints}
    refusals = []
    for plan in plans:
        name, row = plan.cluster.removesuffix("+"), facts.cluster(plan.cluster)
        if row is None or name not in switched:
            refusals.append(Refusal("Trainer's checkpointing recomputes whole layers and nothing else", str(plan)))
        elif plan.applies_to(row.frequency) != len(switched[name].called):
            number = len(switched[name].called)
            refusals.append(Refusal(f"Trainer's checkpointing recomputes all {number} {name} or none", str(plan)))
    missing = [name for name in switched if not any(plan.cluster == f"{name}+" for plan in plans)]
    if plans and missing and not refusals:
        refusals.append(Refusal(f"Trainer's checkpointing recomputes {joined(missing)} too"))
    blocks = [Blocks(name, one.number, tuple(sorted(one.called))) for name, one in switched.items()] if plans else []
    return Expressed(configuration, tuple(blocks), tuple(refusals))


def render(said: Expressed, heading: Heading, located: Located) -> str:
    """Write a dict of the arguments that the setting changes and that the installed version has."""
    known = located.trainer_arguments or ()
    arguments: dict[str, tuple[object, str]] = {
        "per_device_train_batch_size": (heading.batch_size, heading.batch_size_note),
        "gradient_accumulation_steps": (round(heading.accumulation), heading.accumulation_note),
    }
    if said.blocks:  # without blocks the script's own checkpointing stays, which False would switch off
        # Newer versions warn of the older name.
        switch = next((one for one in _SWITCHES if one in known), _SWITCHES[-1])
        # The other kind of checkpoint runs hooks and autocast otherwise, and needs inputs with gradients.
        arguments |= {switch: (True, ""), f"{switch}_kwargs": ({"use_reentrant": False}, "")}
    lines = [
        f'    "{name}": {value!r},'.replace("'", '"') + (f"  # {note}" if note else "")
        for name, (value, note) in arguments.items()
        if name in known and value is not None
    ]
    theirs = f"Take those of these names out of your own call. They are transformers {located.transformers}'s."
    return "\n".join([heading.docstring(USAGE, theirs), "", "ARGUMENTS = {", *lines, "}", ""])
