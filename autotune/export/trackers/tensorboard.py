"""TensorBoard: a folder of event files, with trials as sessions of the HParams page and their metrics as scalars."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import Discrete, HParam, Metric, hparams_config_pb, hparams_pb
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from ...errors import UsageError
from ...records.printable import markdown, shell_word
from .sending import Sent, TrackedRun, TrackedStudy

NEXT = "make room, or name another folder with --output; what has arrived is not sent twice"
_STUDY = "autotune-study"
_OURS = "events.out.tfevents.*"
_IDENTITY = "identity"


def send(study: TrackedStudy, *, folder: Path, bundle: Path | None) -> Sent:
    """See ``sending.send``. What a trial came to never changes, so a trial that is there is left as it is."""
    del bundle  # event files hold none
    folder.mkdir(parents=True, exist_ok=True)
    about = folder / _STUDY
    identity = about / _IDENTITY
    if identity.exists() and identity.read_text() != study.identity:
        raise UsageError(f"{str(folder)!r} has another study of that name", hint="name another folder with --output")
    new = 0
    for run in study.runs:
        if not (folder / run.name).exists():
            _write(folder / run.name, _events(run))
            new += 1
    # It says which columns there are, and how the study stands, which does change.
    if about.exists():
        for file in (*about.glob(_OURS), identity):
            file.unlink(missing_ok=True)
        about.rmdir()
    _write(about, _about(study))
    identity.write_text(study.identity)
    return Sent(str(folder), f"tensorboard --logdir {shell_word(str(folder))}", new)


def _about(study: TrackedStudy) -> list[tuple[float, Any]]:
    params = {name for run in study.runs for name in run.params}
    values = {name: sorted({run.params[name] for run in study.runs if name in run.params}) for name in sorted(params)}
    metrics = sorted({name for run in study.runs for name in run.metrics})
    config = hparams_config_pb(
        [HParam(name, Discrete(seen)) for name, seen in values.items()],
        [Metric(name) for name in metrics],
        time_created_secs=study.created_at,
    )
    told = "\n".join(f"- {name}: {markdown(str(value))}" for name, value in {**study.params, **study.tags}.items())
    figures = [(study.created_at, scalar_pb(name, value)) for name, value in study.metrics.items()]
    return [(study.created_at, config), (study.created_at, text_pb(study.name, told)), *figures]


def _events(run: TrackedRun) -> list[tuple[float, Any]]:
    began = hparams_pb(dict(run.params), trial_id=run.name, start_time_secs=run.started_at)
    ended = _session_end(api_pb2.STATUS_FAILURE if run.failed else api_pb2.STATUS_SUCCESS, run.ended_at)
    figures = [(run.ended_at, scalar_pb(name, value)) for name, value in run.metrics.items()]
    return [(run.started_at, began), *figures, (run.ended_at, ended)]


def _session_end(status: Any, at: float) -> Any:
    """TensorBoard makes this event too, but in a module that wants TensorFlow."""
    data = HParamsPluginData(session_end_info=SessionEndInfo(status=status, end_time_secs=at))
    about, tensor = metadata.create_summary_metadata(data), metadata.NULL_TENSOR
    return Summary(value=[Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=tensor)])


def _write(folder: Path, events: list[tuple[float, Any]]) -> None:
    """Write a folder of events, whole or not at all."""
    unfinished = folder.with_name(f".{uuid.uuid4().hex[:8]}")
    try:
        writer = EventFileWriter(str(unfinished))
        try:
            for at, summary in events:
                writer.add_event(Event(wall_time=at, step=0, summary=summary))
        finally:
            writer.close()
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
