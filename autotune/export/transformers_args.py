"""A setting as arguments of transformers' ``TrainingArguments``, as far as the installed version has them."""

from __future__ import annotations

from ..records.located import Located
from .expressing import Expressed
from .heading import Heading

_SWITCHES = ("activation_checkpointing", "gradient_checkpointing")


def transformers_arguments(said: Expressed, heading: Heading, located: Located) -> dict[str, object]:
    """The arguments by name; those that the installed version does not have are left out.

    So is what the setting leaves as it is in the script: a batch size that nobody knows, and the script's own
    checkpointing, which False would switch off.
    """
    arguments: dict[str, object] = {}
    if heading.batch_size is not None:
        arguments["per_device_train_batch_size"] = heading.batch_size
    arguments["gradient_accumulation_steps"] = round(heading.accumulation)
    if said.every_layer:
        # Newer versions warn of the older name.
        name = next((one for one in _SWITCHES if one in (located.trainer_arguments or ())), _SWITCHES[-1])
        arguments[name] = True
        # The other kind of checkpoint runs hooks and autocast otherwise, and needs inputs with gradients.
        arguments[f"{name}_kwargs"] = {"use_reentrant": False}
    return {name: value for name, value in arguments.items() if name in (located.trainer_arguments or ())}


def render_transformers_args(said: Expressed, heading: Heading, located: Located) -> str:
    """The file's contents: the arguments as one dict."""
    notes = {
        "per_device_train_batch_size": heading.batch_size_note,
        "gradient_accumulation_steps": heading.accumulation_note,
    }
    lines = [
        f"    {name!r}: {value!r},".replace("'", '"') + (f"  # {notes[name]}" if name in notes else "")
        for name, value in transformers_arguments(said, heading, located).items()
    ]
    paragraphs = "\n\n".join(heading.paragraphs)
    return (
        f'"""{heading.title}: TrainingArguments(..., **ARGUMENTS).\n\n{paragraphs}\n\n'
        f"Take those of these names out of your own call. They are transformers {located.transformers}'s.\n"
        '"""\n\n' + "\n".join(["ARGUMENTS = {", *lines, "}"]) + "\n"
    )
