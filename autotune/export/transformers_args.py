"""A setting as arguments of transformers' ``TrainingArguments``, as far as the installed version has them."""

from __future__ import annotations

import math

from ..errors import UsageError
from ..records.configuration import Configuration
from ..records.facts import Facts, Located, LocatedBlocks
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
    blocks: dict[str, Blocks] = {}
    refusals = []
    for plan in plans:
        name, row = plan.cluster.removesuffix("+"), facts.cluster(plan.cluster)
        if row is None or name not in switched:
            refusals.append(Refusal("Trainer's checkpointing recomputes whole layers and nothing else", str(plan)))
            continue
        one = switched[name]
        # A plan counts calls. Two plans for one class choose layers at two distances.
        is_called_once = row.frequency == len(one.called)
        every = _distance(one, plan.applies_to(row.frequency)) if is_called_once and name not in blocks else 0
        blocks[name] = Blocks(name, one.number, tuple(sorted(one.called))[:: every or 1])
        if not every:
            number = len(one.called)
            which = f"every n-th of the {number}" if one.skips else f"all {number}"
            refusals.append(Refusal(f"Trainer's checkpointing recomputes {which} {name} or none", str(plan)))
    missing = [name for name in switched if name not in blocks]
    if plans and missing and not refusals:
        refusals.append(Refusal(f"Trainer's checkpointing recomputes {joined(missing)} too"))
    return Expressed(configuration, tuple(blocks.values()), tuple(refusals))


def _distance(blocks: LocatedBlocks, count: int) -> int:
    """Return the distance at which the switch recomputes so many of the blocks, from the first on; 0 if it cannot."""
    number = len(blocks.called)
    if count == number:
        return 1
    if not count or not blocks.skips or number != blocks.number:
        return 0
    every = math.ceil(number / count)
    return every if len(range(0, number, every)) == count else 0


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
        keywords: dict[str, object] = {"use_reentrant": False}
        found = {one.class_name: one for one in located.blocks}
        every = max(_distance(found[one.class_name], len(one.chosen)) for one in said.blocks)
        keywords |= {"every_n_layers": every} if every > 1 else {}
        arguments |= {switch: (True, ""), f"{switch}_kwargs": (keywords, "")}
    lines = [
        f'    "{name}": {value!r},'.replace("'", '"') + (f"  # {note}" if note else "")
        for name, (value, note) in arguments.items()
        if name in known and value is not None
    ]
    theirs = f"Take those of these names out of your own call. They are transformers {located.transformers}'s."
    return "\n".join([heading.docstring(USAGE, theirs), "", "ARGUMENTS = {", *lines, "}", ""])
