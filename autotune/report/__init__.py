"""The report: one versioned document, as text for a terminal and as a page for a browser."""

from .document import DOCUMENT_VERSION, build_document, describe_facts
from .html import render_html
from .text import (
    Table,
    batch_sentences,
    calibration_sentence,
    environment_rows,
    figures_sentence,
    finalist_table,
    fit_sentence,
    fit_table,
    front_table,
    matrix_table,
    peak_sentence,
    plan_table,
    proof_sentence,
    proof_table,
    setting_rows,
    split_rows,
    trial_table,
    verdict_sentence,
)

__all__ = [
    "DOCUMENT_VERSION",
    "Table",
    "batch_sentences",
    "build_document",
    "calibration_sentence",
    "describe_facts",
    "environment_rows",
    "figures_sentence",
    "finalist_table",
    "fit_sentence",
    "fit_table",
    "front_table",
    "matrix_table",
    "peak_sentence",
    "plan_table",
    "proof_sentence",
    "proof_table",
    "render_html",
    "setting_rows",
    "split_rows",
    "trial_table",
    "verdict_sentence",
]
