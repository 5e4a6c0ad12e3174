"""The exported bundle: one module per file that is written, and the folder they make."""

from .bundle import REPORT_NAME, Bundle, check_target, export_bundle, read_bundle
from .env_sh import render_env_sh
from .expressing import KINDS, Expressed, Kind, express
from .heading import Heading, Shown, heading_of
from .mem_opt import render_mem_opt
from .plain_code import PLAIN_CODE_NAME, render_plain_code
from .readme import render_readme
from .stack import build_stack, choose_configuration, render_stack
from .transformers_args import TRANSFORMERS_ARGS_NAME, render_transformers_args
from .whole import check_free, write_whole

__all__ = [
    "FILE_NAMES",
    "KINDS",
    "REPORT_NAME",
    "Bundle",
    "Expressed",
    "Heading",
    "Kind",
    "Shown",
    "build_stack",
    "check_free",
    "check_target",
    "choose_configuration",
    "export_bundle",
    "express",
    "heading_of",
    "read_bundle",
    "render_env_sh",
    "render_mem_opt",
    "render_plain_code",
    "render_readme",
    "render_stack",
    "render_transformers_args",
    "write_whole",
]

FILE_NAMES: dict[Kind, str] = {"torch": PLAIN_CODE_NAME, "transformers": TRANSFORMERS_ARGS_NAME}
"""What the file of each kind is called, unless it is named otherwise."""
