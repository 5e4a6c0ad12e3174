"""The exported bundle: one module per file that is written, and the folder they make."""

from .bundle import REPORT_NAME, Bundle, check_replaceable, export_bundle, read_bundle
from .env_sh import render_env_sh
from .mem_opt import render_mem_opt
from .readme import render_readme
from .stack import build_stack, render_stack

__all__ = [
    "REPORT_NAME",
    "Bundle",
    "build_stack",
    "check_replaceable",
    "export_bundle",
    "read_bundle",
    "render_env_sh",
    "render_mem_opt",
    "render_readme",
    "render_stack",
]
