"""Options that several commands share, and what their values mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["DEFAULT_STORAGE", "ArgumentsArgument", "JsonOption", "ScriptArgument", "StorageOption", "StudyArgument"]

DEFAULT_STORAGE = ".autotune/studies.db"

StorageOption = Annotated[
    str,
    typer.Option(
        "--storage", metavar="URL", help="Database of studies: a file, or an SQLAlchemy URL such as postgresql://…"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")]
ScriptArgument = Annotated[Path, typer.Argument(metavar="SCRIPT", help="The training script, unmodified.")]
StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="The study's name; `autotune studies` lists them.")]
ArgumentsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[-- ARGUMENTS]", help="The script's arguments; {batch_size:32} lets autotune set them."),
]


def print_json(document: Any) -> None:
    """Print a document on standard output."""
    import json

    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
