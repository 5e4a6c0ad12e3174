"""What commands print with ``--json``, held against the schemas on the pages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema

_SCHEMAS = Path(__file__).resolve().parents[1] / "docs/reference/schemas"


def checked(name: str, text: str | bytes) -> Any:
    """Return a document; it has what its schema says, and nothing else."""
    schema = json.loads((_SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    # Fields that a later version may add have to be in the schema, too.
    schema["unevaluatedProperties"] = False
    extended = set(re.findall(r"#/\$defs/(\w+)", json.dumps(schema.get("allOf", [])[:1])))
    for record in schema.get("$defs", {}).keys() - extended:
        schema["$defs"][record]["additionalProperties"] = False
    document = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(document)
    return document
