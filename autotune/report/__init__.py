"""The report: one typed record of a study, as text for a terminal and as a page for a browser.

``record.py`` is the record, ``build.py`` makes it. ``sentences.py`` and ``tables.py`` say it in words and rows, which
every place that shows it shares, and ``page.py`` is the
page, with the drawings of ``chart.py`` and ``area.py``. ``foresight.py`` is what discovery alone tells, ``tree.py`` the
model as a tree of what its parts keep, ``gates.py`` what gates said.
"""

from .assets import read_asset
from .build import build_report, describe_facts
from .gates import draw_gates, gate_table
from .page import page_values, render_html, templates
from .record import (
    REPORT_VERSION,
    DescribedScript,
    ModelPart,
    ModelTree,
    Point,
    Report,
    ReportedSetting,
    StepMemory,
    winner_word,
)
from .sentences import (
    batch_sentences,
    calibration_sentence,
    dimensions_sentence,
    figures_sentence,
    fit_sentence,
    foresight_sentence,
    gain_sentences,
    headline,
    keep_sentence,
    model_sentences,
    part_words,
    peak_sentence,
    proof_sentence,
    rerun_words,
    trust_sentences,
    undescribed_sentence,
    verdict_sentence,
)
from .tables import (
    Table,
    environment_rows,
    finalist_table,
    fit_table,
    front_table,
    matrix_table,
    plan_table,
    proof_table,
    recomputed_in,
    rest_bytes,
    rest_words,
    setting_rows,
    split_rows,
    trial_table,
)

__all__ = [
    "REPORT_VERSION",
    "DescribedScript",
    "ModelPart",
    "ModelTree",
    "Point",
    "Report",
    "ReportedSetting",
    "StepMemory",
    "Table",
    "batch_sentences",
    "build_report",
    "calibration_sentence",
    "describe_facts",
    "dimensions_sentence",
    "draw_gates",
    "environment_rows",
    "figures_sentence",
    "finalist_table",
    "fit_sentence",
    "fit_table",
    "foresight_sentence",
    "front_table",
    "gain_sentences",
    "gate_table",
    "headline",
    "keep_sentence",
    "matrix_table",
    "model_sentences",
    "page_values",
    "part_words",
    "peak_sentence",
    "plan_table",
    "proof_sentence",
    "proof_table",
    "read_asset",
    "recomputed_in",
    "render_html",
    "rerun_words",
    "rest_bytes",
    "rest_words",
    "setting_rows",
    "split_rows",
    "templates",
    "trial_table",
    "trust_sentences",
    "undescribed_sentence",
    "verdict_sentence",
    "winner_word",
]
