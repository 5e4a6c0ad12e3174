"""A session of ONNX Runtime as its settings and conversions make it: what the worker runs and a bundle writes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from .choice_types import Choice
from .conversion import ConversionChoice
from .environment import DeviceKind
from .inference import Conversion
from .session_settings import SessionSetting

MALLOC_PARAMETERS = {"M_MMAP_THRESHOLD": -3}
"""Numbers of ``malloc.h`` of glibc."""

ENUMERATIONS = {
    "graph_optimization_level": "GraphOptimizationLevel",
    "execution_mode": "ExecutionMode",
    "execution_order": "ExecutionOrder",
}
"""Options whose values are members of an enumeration of ONNX Runtime's, by the option's name."""

CONVERTED_MODEL_NAME = "model.onnx"
"""A converted model, in its folder; large weights are in a file beside it."""

CONVERTED_JSON_NAME = "converted.json"
"""What it came to, beside it."""


@dataclass(frozen=True)
class Session:
    """The settings by which a session is made and run, which ``session.json`` holds beside the model."""

    options: dict[str, bool | int | str] = field(default_factory=dict)  # attributes of `SessionOptions`
    config: dict[str, str] = field(default_factory=dict)  # entries of the session's configuration
    run_config: dict[str, str] = field(default_factory=dict)  # entries of each run's configuration
    arena: dict[str, int] = field(default_factory=dict)  # of one for all sessions of the process; empty for their own
    io_binding: bool = False
    malloc: dict[str, int] = field(default_factory=dict)  # parameters of mallopt(3)
    provider: dict[str, str] = field(default_factory=dict)  # options of CUDA's provider
    outputs_on_device: bool = False  # bound outputs are left there
    conversion: Conversion | None = None  # made of the model before; None for the model as it is

    @property
    def is_captured(self) -> bool:
        """Return whether runs are captured into CUDA graphs: what is bound must not move then."""
        return self.provider.get("enable_cuda_graph") == "1"


def converted_folder(run_directory: Path) -> Path:
    """Return where runs of a study keep converted models, given the folder of one of them."""
    return run_directory.parent / "converted"


def providers_of(device: DeviceKind, session: Session) -> list[str | tuple[str, dict[str, str]]]:
    """Return the providers of a session on a device; what the first one cannot run goes to the CPU."""
    cpu = "CPUExecutionProvider"
    return [cpu] if device == "cpu" else [("CUDAExecutionProvider", dict(session.provider)), cpu]


def session_of(made: Iterable[tuple[Choice, str]]) -> Session:
    """Return the session of settings and conversions, each with its value as written."""
    session = Session()
    for setting, value in made:
        if isinstance(setting, ConversionChoice):
            session = replace(session, conversion=setting.conversion)
            continue
        assert isinstance(setting, SessionSetting), "the engine has no other"
        text = setting.text(value)
        if setting.part == "binding":
            session = replace(session, io_binding=bool(text))
        elif setting.part == "outputs":
            session = replace(session, outputs_on_device=bool(text))
        elif text or setting.part in ("options", "arena"):
            number = setting.part in ("arena", "malloc")
            written = text if setting.part == "options" else int(text) if number else str(text)
            getattr(session, setting.part)[setting.key] = written
    return session
