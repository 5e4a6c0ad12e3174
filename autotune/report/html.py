"""The report as one self-contained page: the template of ``dashboards/``, filled in.

The verdict, the figures and the tables are plain HTML made here, so the page reads without JavaScript; only the chart
needs it. Everything that came from the study is escaped, and what that should miss is stopped by the page's policy:
it allows the two scripts by their hashes, no others, and no network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from html import escape

from ..records import to_json
from ..records.figures import format_rate
from ..records.units import format_bytes
from . import sentences, tables
from .assets import read_asset
from .record import Report, ReportedSetting, winner_word

__all__ = ["render_html"]

_MARKER = re.compile(r"\{\{ (\w+) \}\}")


def render_html(report: Report) -> str:
    """The page of a report."""
    from plotly.offline import get_plotlyjs  # slow to import, and only a page needs it

    plotly, script = get_plotlyjs(), read_asset("report.js")
    study = report.study
    created = datetime.fromtimestamp(study.created_at, UTC)
    values = {
        "policy": _policy(plotly, script),
        "title": escape(f"{study.script} · autotune"),
        "css": read_asset("report.css"),
        "eyebrow": escape(f"autotune · {study.script} · study {study.name} · {created:%-d %B %Y}"),
        "verdict": escape(sentences.verdict_sentence(report)),
        "lead": _lead(report),
        "figures": _figures(report),
        "launch": _launch(report),
        "chart": _chart(report),
        "finalists": _finalists(report),
        "plans": _plans(report),
        "memory": _memory(report),
        "trials": _trials(report),
        "environment": _environment(report),
        "footer": escape(f"Written by autotune {study.autotune}. This page loads nothing from a network."),
        "data": _embedded(report),
        "plotly": plotly,
        "script": script,
    }
    # One pass over the template: a marker inside a value is text, not a marker.
    return _MARKER.sub(lambda match: values[match[1]], read_asset("report.html"))


def _policy(*scripts: str) -> str:
    """The Content-Security-Policy: these scripts, styles of the page itself, images that the chart makes."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _embedded(report: Report) -> str:
    """JSON that cannot end its script element, whatever strings are in it; ASCII, so no separators of lines either."""
    data = json.dumps(to_json(report), ensure_ascii=True, separators=(",", ":"))
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _lead(report: Report) -> str:
    winner, baseline = report.winner, report.baseline
    if winner is None or _same(winner, baseline):
        return ""
    words, size = winner.recomputed, winner.batch_size
    parts = [f"recompute {escape(words)}" if words else "no recompute"]
    parts += [f"batch size {size}"] if size else []
    accumulation = winner.configuration.accumulation
    parts += [f"accumulation {accumulation}"] if accumulation else []
    parts += [f"engine {escape(winner.configuration.engine)}"]
    plans = " ".join(f"<code>{escape(plan)}</code>" for plan in tables.recomputed_in(winner))
    notes = [f"Its plans: {plans}" if plans else ""]
    notes += map(escape, (" ".join(sentences.gain_sentences(report)), sentences.proof_sentence(report)))
    below = "".join(f'\n<p class="note">{note}</p>' for note in notes if note)
    return f'<p class="lead">The setting: {"; ".join(parts)}.</p>{below}'


def _same(winner: ReportedSetting | None, baseline: ReportedSetting | None) -> bool:
    return winner is not None and baseline is not None and winner.configuration == baseline.configuration


def _figures(report: Report) -> str:
    """Two panels of bars: speed with its spread, and peak memory against the limit."""
    winner, baseline = report.winner, report.baseline
    if baseline is None and winner is None:
        return ""
    shown = [] if winner is None or _same(winner, baseline) else [("This setting", "winner", winner)]
    shown += [] if baseline is None else [("Your script", "baseline", baseline)]
    own = None if winner is None else winner.text
    compared = next((one.speedup for one in report.finalists if one.text == own), 0.0)
    return f'<div class="figures">\n{_speed(shown, compared)}\n{_peak(shown, report)}\n</div>'


_Shown = Sequence[tuple[str, str, ReportedSetting]]


def _speed(shown: _Shown, compared: float) -> str:
    """The panel of speeds; ``compared`` is what the rounds of a final say, 0.0 where there are none."""
    first = shown[0][2].samples_per_s
    big = f"{format_rate(first)} <small>samples/s</small>"
    if len(shown) > 1 and shown[1][2].samples_per_s:  # 0 when the samples could not be counted
        ratio = compared or first / shown[1][2].samples_per_s
        big = f"{ratio:.2f}x <small>the samples per second of your script</small>"
    top = max(figures.samples_per_s_high for _, _, figures in shown)
    bars = []
    for name, style, figures in shown:
        low, high = figures.samples_per_s_low, figures.samples_per_s_high
        marks = (
            f'<span class="fill {style}" style="width:{_percent(figures.samples_per_s, top)}"></span>'
            f'<span class="spread" style="left:{_percent(low, top)};width:{_percent(high - low, top)}"></span>'
        )
        rounds = f", {figures.rounds} rounds" if figures.rounds > 1 else ""
        spread = f"{format_rate(low)} to {format_rate(high)}{rounds}"
        value = f"<b>{format_rate(figures.samples_per_s)}</b> samples/s ({spread})"
        bars.append(_bar(name, marks, value))
    return _panel("Speed", big, bars)


def _peak(shown: _Shown, report: Report) -> str:
    word, limit = ("limit", report.limit_bytes)
    if report.target_bytes is not None:
        word, limit = ("target", report.target_bytes)
    peaks = [(name, style, figures.peak_bytes) for name, style, figures in shown if figures.peak_bytes is not None]
    if not peaks:
        return ""
    big = format_bytes(peaks[0][2]) + ("" if limit is None else f" <small>of {format_bytes(limit)}</small>")
    if len(peaks) > 1 and report.settings.objective.goal == "memory":
        big = f"{peaks[0][2] / peaks[1][2]:.2f}x <small>the memory of your script</small>"
    top = max([peak for _, _, peak in peaks] + ([] if limit is None else [limit]))
    bars = []
    for name, style, peak in peaks:
        over = limit is not None and peak > limit
        marks = f'<span class="fill {"over" if over else style}" style="width:{_percent(peak, top)}"></span>'
        if limit is not None:
            marks += f'<span class="limit" style="left:{_percent(limit, top)}"></span>'
        share = "" if limit is None else f", {peak / limit:.0%} of the {word}" if limit else ""
        bars.append(_bar(name, marks, f"<b>{format_bytes(peak)}</b>{share}"))
    return _panel("Peak memory", big, bars)


def _panel(title: str, big: str, bars: Sequence[str]) -> str:
    return f'<div class="figure"><h2>{title}</h2><p class="big">{big}</p>{"".join(bars)}</div>'


def _bar(name: str, marks: str, value: str) -> str:
    track = f'<span class="track">{marks}</span>'
    return f'<div class="bar"><span>{name}</span>{track}<span class="value">{value}</span></div>'


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.2f}%"


def _launch(report: Report) -> str:
    if report.winner is None:
        return ""
    command = escape(report.launch.command or "")
    paths = "with the paths of the bundle's folder and of the script as seen from where you are"
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in (paths, *sentences.batch_sentences(report)))
    return (
        '<section aria-labelledby="run"><h2 id="run">Run it</h2>\n'
        f'<div class="command"><pre><code id="command">{command}</code></pre>'
        '<button type="button" data-copy="command">Copy</button></div>\n'
        f"{paragraphs}</section>"
    )


def _chart(report: Report) -> str:
    """The place that ``report.js`` draws in."""
    points = [point for point in report.points if point.outcome != "running"]
    if not points:
        return ""
    failed = [point for point in points if point.outcome != "measured"]
    unplaced = sum(point.outcome != "out_of_memory" for point in failed)
    count = f"{len(points)} trial{'' if len(points) == 1 else 's'}"
    caption = [f"{count}, {len(failed) or 'none'} of them failed."]
    if unplaced:
        caption.append(f"{unplaced} failed for another reason than memory: see the table of trials.")
    caption.append("Up is faster, left is smaller; bars show the 95 % interval.")
    caption.append("The table has the front: what each amount of memory buys.")
    return _section(
        "search",
        "Every setting that was tried",
        " ".join(caption),
        '<div id="chart" role="img" aria-label="Samples per second against peak memory, one mark per trial"><noscript>'
        '<p class="note">The chart needs JavaScript. The table of trials has the same figures.</p></noscript></div>'
        + _table(tables.front_table(report), names={2}),
    )


def _finalists(report: Report) -> str:
    return _section(
        "finalists",
        "Finalists",
        "Measured again in fresh processes, in turns with your script. The range is what the rounds leave open.",
        _table(tables.finalist_table(report), names={0}),
    )


def _plans(report: Report) -> str:
    return _section(
        "plans",
        "What can be recomputed",
        f"At {_dimensions(report)}. Savings of several plans do not add up: some of them save the same tensors.",
        _table(tables.plan_table(report), names={0, 3}),
    )


def _dimensions(report: Report) -> str:
    return sentences.dimensions_sentence(report) or "the script's own sizes"


def _memory(report: Report) -> str:
    rows = tables.split_rows(report)
    if not rows:
        return ""
    whole = sum(size for _, size in rows)
    parts = "".join(
        f'<span class="part-{number}" style="flex:{size / whole:.5f}"></span>' for number, (_, size) in enumerate(rows)
    )
    legend = "".join(
        f'<li><i class="part-{number}"></i>{escape(name)} <b>{format_bytes(size)}</b></li>'
        for number, (name, size) in enumerate(rows)
    )
    return _section(
        "memory",
        "Where your script's memory goes",
        "Recompute plans make the activations smaller; they leave the rest alone."
        + (f" The peak of a step is {peak}." if (peak := sentences.peak_sentence(report)) else ""),
        f'<div class="split" aria-hidden="true">{parts}</div><ul class="legend">{legend}</ul>'
        + _table(tables.matrix_table(report)),
    )


def _trials(report: Report) -> str:
    is_sure = winner_word(report) == "winner"
    styles = [
        "winner" if point.is_winner and is_sure else "failed" if point.outcome not in ("measured", "running") else ""
        for point in report.points
    ]
    table = _table(tables.trial_table(report), names={1}, wide={5}, styles=styles, style="trials")
    return _section("trials", "Trials", "In the order in which they were run.", table)


def _environment(report: Report) -> str:
    pairs = "".join(
        "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows) + "</dl>"
        for rows in (tables.environment_rows(report), tables.setting_rows(report))
        if rows
    )
    said = [*filter(None, [sentences.undescribed_sentence(report)]), *report.notes]
    notes = "".join(f"<li>{escape(note)}</li>" for note in said)
    listed = f'<ul class="list">{notes}</ul>' if notes else ""
    return _section("environment", "Where and how it was measured", "", f'<div class="pairs">{pairs}</div>{listed}')


def _section(name: str, title: str, note: str, body: str) -> str:
    if not body:
        return ""
    said = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{said}\n{body}</section>'


def _table(
    table: tables.Table,
    *,
    names: Collection[int] = (),
    wide: Collection[int] = (),
    styles: Sequence[str] = (),
    style: str = "",
) -> str:
    """A table, empty if it has no rows: columns in ``names`` hold identifiers, those in ``wide`` sentences."""
    if not table.rows:
        return ""
    classes = [
        "number" if n in table.numeric else "name" if n in names else "wide" if n in wide else ""
        for n in range(len(table.columns))
    ]
    head = "".join(f"<th{_class(of)}>{escape(c)}</th>" for of, c in zip(classes, table.columns, strict=True))
    rows = "\n".join(
        f"<tr{_class(styles[number] if styles else '')}>"
        + "".join(f"<td{_class(of)}>{escape(cell)}</td>" for of, cell in zip(classes, row, strict=True))
        + "</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f'<div class="{f"scroll {style}".strip()}" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody></table></div>"
    )


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""
