"""The report as one self-contained page: the templates of ``dashboards/``, filled in.

All of it is plain HTML and inline SVG, so it reads without JavaScript. The templates escape whatever comes from the
study. The page's policy stops what that should miss: it allows one script by its hash, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..records.codec import to_json
from ..records.figures import figure_cells, format_spread
from ..records.units import format_bytes, format_duration, format_rate
from ..records.words import cut_names
from . import answer, sentences, tables
from .batches import epoch_sentences, sized_in
from .chart import draw_batches, draw_chart
from .memory_chart import draw_steps
from .record import Point, Report, ReportedSetting, winner_word

if TYPE_CHECKING:
    from jinja2 import Environment


_PACKAGE = Path(__file__).resolve().parent.parent
_FOLDERS = (_PACKAGE / "dashboards", _PACKAGE.parent / "dashboards")


def folder_of(name: str) -> Path:
    """Return the folder that has this file of ``dashboards/``."""
    folder = next((folder for folder in _FOLDERS if (folder / name).is_file()), None)
    assert folder is not None, f"{name} is not in {_FOLDERS}: the wheel was built without dashboards/"
    return folder


def read_asset(name: str) -> str:
    """Read one file of ``dashboards/``."""
    return (folder_of(name) / name).read_text(encoding="utf-8")


def render_html(report: Report) -> str:
    """Return the page of a report."""
    script = read_asset("report.js")
    values = page_values(report)
    page = templates().get_template("report.html")
    return page.render(
        **values, policy=_policy(script), script=script, css=read_asset("report.css"), data=_embedded(report)
    )


def page_values(report: Report) -> dict[str, Any]:
    """Return what the template shows of a report, but for what makes it a page by itself."""
    shown = _shown(report)
    return {
        "report": report,
        "created": datetime.fromtimestamp(report.study.created_at, UTC).strftime("%-d %B %Y"),
        "headline": answer.headline(report),
        "answer": answer.answer_below(report),
        "in_full": answer.verdict_sentence(report),
        "badge": answer.badge_words(report),
        "trust": answer.trust_sentences(report),
        "gain": answer.gain_sentences(report),
        "offer": answer.compiled_sentence(report),
        "notes": [answer.proof_sentence(report)],
        "plans": () if report.winner is None else tables.recomputed_in(report.winner),
        "shown": shown,
        "compared": _compared(report),
        "lighter": _lighter(report),
        "is_kept": answer.keep_sentence(report),
        "confirm": answer.confirm_command(report),
        "batch": (*epoch_sentences(report.ahead, sized_in(report)), *sentences.batch_sentences(report)),
        "chart": draw_chart(report),
        "narrow_chart": draw_chart(report, width=400.0, height=400.0),
        "batches": draw_batches(report),
        "front": tables.front_table(report),
        "finalists": tables.finalist_table(report),
        "dimensions": sentences.dimensions_sentence(report) or "the script's own sizes",
        "parts": tables.split_rows(report),
        "rest": tables.rest_bytes(report, None if report.baseline is None else report.baseline.peak_bytes),
        "rest_words": tables.rest_words(report),
        "steps": draw_steps(report),
        "narrow_steps": draw_steps(report, width=400.0),
        "peak": sentences.peak_sentence(report),
        "model_notes": sentences.model_sentences(report),
        "matrix": tables.matrix_table(report.memory_matrix),
        "moments": tables.moment_table(report),
        "operators": tables.operator_table(report),
        "conversions": tables.conversion_table(report),
        "trials": tables.trial_table(report),
        "trial_kinds": _kinds(report),
        "environment": [rows for rows in (tables.environment_rows(report), tables.setting_rows(report)) if rows],
        "said": [
            *filter(None, [sentences.undescribed_sentence(report), answer.uncompiled_sentence(report)]),
            *report.notes,
        ],
    }


@cache
def templates() -> Environment:
    """Return all templates of ``dashboards/``, which escape what they show."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    found = Environment(
        loader=FileSystemLoader(folder_of("report.html")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {
        "size": format_bytes,
        "rate": format_rate,
        "duration": format_duration,
        "cut": cut_names,
        "part": sentences.part_words,
        "spread": format_spread,
        "ended": tables.outcome_label,
        "cells": lambda figures: figure_cells(figures).items(),
        "rerun": sentences.rerun_words,
        "percent": lambda part, whole: f"{100 * part / whole if whole else 0:.2f}%",
    }
    return found


def _policy(script: str) -> str:
    """Return the Content-Security-Policy: this script, styles of the page itself, nothing from anywhere else."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; "
        "form-action 'none'"
    )


def _embedded(report: Report) -> str:
    """Write JSON that cannot end its script element; ASCII, so no separators of lines either."""
    data = json.dumps(to_json(report), ensure_ascii=True, separators=(",", ":"))
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _shown(report: Report) -> list[tuple[str, str, ReportedSetting]]:
    """Return the settings that are compared at the top, with the class that they are drawn in."""
    winner, baseline = report.winner, report.baseline
    is_same = winner is not None and baseline is not None and winner.configuration == baseline.configuration
    shown = [] if winner is None or is_same else [("This setting", winner_word(report).split()[0], winner)]
    return shown if baseline is None else [*shown, (f"Your {report.target}", "baseline", baseline)]


def _compared(report: Report) -> float:
    """Return how many times as fast a confirmed answer is, by the repetitions if there are some; else 0.0."""
    verdict, winner, own = report.verdict, report.winner, report.baseline
    # Where the script does not fit, nobody can choose it.
    if verdict is None or not verdict.is_confirmed or verdict.answer == "baseline_does_not_fit":
        return 0.0
    if winner is None or own is None or winner.text == own.text or not own.samples_per_s:
        return 0.0
    of_repetitions = next((one.speedup for one in report.finalists if one.text == winner.text), 0.0)
    return of_repetitions or winner.samples_per_s / own.samples_per_s


def _lighter(report: Report) -> float:
    """Return the answer's memory as a multiple of the script's, where less memory is the objective; else 0.0."""
    if report.settings.objective.goal != "memory" or not _compared(report) or report.winner is None:
        return 0.0
    return next((one.peak_ratio for one in report.finalists if one.text == report.winner.text), 0.0)


def _kinds(report: Report) -> list[str]:
    """Return of each trial how its row is drawn, and what the filter of the table knows it by."""
    is_sure = winner_word(report) == "winner"

    def kind(point: Point) -> str:
        if point.is_winner and is_sure:
            return "winner"
        if point.outcome != "measured":
            return "running" if point.outcome == "running" else "failed"
        return "fits" if point.fits else "over"

    return [kind(point) for point in report.points]
