"""The pages by their addresses, and the files that can be taken away."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flask import Flask, Response, abort, request

from ..errors import AutotuneError, StorageError
from ..pipeline import write_bundle
from ..records.codec import to_json
from ..records.configuration import Configuration
from ..records.study import StudyRecord
from ..report.answer import headline
from ..report.gates import draw_gates, gate_table
from ..report.page import page_values, read_asset, render_html, templates
from ..store.database import Store
from .access import put_door
from .comparing import beside, compared_sentences
from .reports import Reports, Seen, log_files, read_end

_ASSETS = {
    "report.css": "text/css",
    "dashboard.css": "text/css",
    "report.js": "text/javascript",
    "dashboard.js": "text/javascript",
}
_GATES_SHOWN = 200  # of each setting, the newest


def make_app(store: Store, *, token: str = "") -> Flask:
    """Make the pages, and the door before them; they only read the store."""
    app = Flask("autotune.dashboard", static_folder=None)
    put_door(app, token=token)
    reports = Reports(store)
    rows: dict[str, tuple[str, dict[str, Any]]] = {}  # of every study: reports are kept of a few

    # The query names studies: their names hold slashes and dots, which mean something in a path.
    def study(name: str = "name") -> Seen:
        wanted = request.args.get(name, "")
        try:
            return reports.of(wanted)
        except StorageError as error:
            if wanted in store:
                raise
            abort(404, error)  # with those that are there

    @app.get("/")
    def studies() -> Response:
        version, names = store.version(), store.names()
        for name in names:
            own = store.open(name).version()
            if name not in rows or rows[name][0] != own:
                rows[name] = own, _row(reports.of(name))
        shown = [rows[name][1] for name in reversed(names)]
        return _page("studies.html", "studies", seen=shown, database=store.url, version=version)

    @app.get("/study")
    def one_study() -> Response:
        seen = study()
        return _page(
            "study.html",
            "study",
            **page_values(seen.report),
            name=seen.record.name,
            version=seen.version,
            state=_state(seen),
            others=[name for name in store.names() if name != seen.record.name],
            trial_link=f"/study/trial?name={quote(seen.record.name, safe='')}&number=",
        )

    @app.get("/study/trial")
    def trial() -> Response:
        seen, number = study(), request.args.get("number", type=int)
        found = next((one for one in seen.record.shown if one.number == number), None)
        if found is None:
            abort(404, f"Study {seen.record.name!r} has no trial {request.args.get('number', '')!r}.")
        return _page(
            "trial.html",
            "study",
            name=seen.record.name,
            point=seen.report.points[found.number],
            outcome=found.outcome,
            logs=[(path.name, read_end(path)) for path in log_files(found.run_directory)],
        )

    @app.get("/study/version")
    def version() -> Response:
        return Response(study().version if request.args.get("name") else store.version(), mimetype="text/plain")

    @app.get("/study/report.html")
    def report_page() -> Response:
        seen = study()
        return _download(render_html(seen.report).encode(), "text/html", f"{seen.record.name}.html")

    @app.get("/study/report.json")
    def report_json() -> Response:
        seen = study()
        document = json.dumps(to_json(seen.report), indent=2).encode()
        return _download(document, "application/json", f"{seen.record.name}.json")

    @app.get("/study/bundle.zip")
    def bundle() -> Response:
        seen = study()
        return _download(_zipped(seen.record), "application/zip", f"autotune-{seen.record.name}.zip")

    @app.get("/compare")
    def compare() -> Response:
        left, right = study("a"), study("b")
        return _page(
            "compare.html",
            "studies",
            left=left,
            right=right,
            sentences=compared_sentences(left.report, right.report),
            rows=beside(left.report, right.report),
        )

    @app.get("/gates")
    def gates() -> Response:
        version = store.version()
        held: dict[tuple[str, str], list[Any]] = {}
        for one in store.gates():
            held.setdefault((one.script_name, one.configuration), []).append(one)
        newest = sorted(held.items(), key=lambda item: -item[1][-1].held_at)
        return _page(
            "gates.html",
            "gates",
            version=version,
            groups=[
                (
                    script,
                    Configuration.from_key(setting),
                    past[-1],
                    draw_gates(past[-_GATES_SHOWN:]),
                    gate_table(reversed(past[-_GATES_SHOWN:])),
                )
                for (script, setting), past in newest
            ],
        )

    @app.get("/assets/<name>")
    def asset(name: str) -> Response:
        if name not in _ASSETS:
            abort(404, f"There is no file {name!r} here.")
        return Response(read_asset(name), mimetype=_ASSETS[name])

    @app.errorhandler(AutotuneError)
    def failed(error: AutotuneError, status: int = 503) -> Response:
        return _page("problem.html", "", status, told=str(error), hint=error.hint)

    @app.errorhandler(404)
    def not_found(error: Any) -> Response:
        if isinstance(error.description, AutotuneError):
            return failed(error.description, 404)
        return _page("problem.html", "", 404, told=error.description, hint="")

    return app


def _page(template: str, place: str, status: int = 200, **values: Any) -> Response:
    return Response(templates().get_template(template).render(place=place, **values), status, mimetype="text/html")


def _download(content: bytes, mimetype: str, name: str) -> Response:
    # RFC 6266, RFC 5987: a name of any characters, as percent-encoded UTF-8.
    attached = f"attachment; filename*=UTF-8''{quote(name.replace('/', '-'), safe='')}"
    return Response(content, mimetype=mimetype, headers={"Content-Disposition": attached})


def _zipped(record: StudyRecord) -> bytes:
    with tempfile.TemporaryDirectory(prefix="autotune-bundle-") as made:
        folder = write_bundle(record, Path(made) / "bundle")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(folder.iterdir()):
                archive.write(path, path.name)
        return packed.getvalue()


def _row(seen: Seen) -> dict[str, Any]:
    report = seen.report
    return {
        "name": seen.record.name,
        "script": report.study.script,
        "begun": datetime.fromtimestamp(report.study.created_at, UTC).strftime("%Y-%m-%d %H:%M"),
        "state": _state(seen),
        "trials": sum(point.outcome != "running" for point in report.points),
        "headline": headline(report),
        "winner": report.winner,
    }


def _state(seen: Seen) -> str:
    """``running``, ``done``, ``open`` (there is an answer that is not confirmed) or ``stopped`` (there is none)."""
    verdict = seen.report.verdict
    if seen.is_running:
        return "running"
    if verdict is None:
        return "stopped"
    return "done" if verdict.is_confirmed else "open"
