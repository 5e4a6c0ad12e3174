"""From a script to facts: check the script before a run, and judge what the discovery run brought back."""

from __future__ import annotations

from .choices import check_choices
from .judge import check_limit, judge
from .script import check_script, script_sha256

__all__ = ["check_choices", "check_limit", "check_script", "judge", "script_sha256"]
