"""The data that crosses boundaries: frozen dataclasses and their JSON. Standard library only."""

from .codec import dumps, from_json, loads, to_json
from .configuration import Configuration, Engine
from .environment import DeviceKind, Environment
from .facts import BatchControl, ClusterFacts, Facts, OptimizerFacts, PrecisionFacts, RootFacts
from .graph import ActivationGraph, Boundary, Calibration, LayerNodes, OccurrenceNodes
from .measurement import Measurement, MemorySplit, Peaks, median_interval
from .outcome import (
    Died,
    Fallback,
    HostOutOfMemory,
    InvalidPlan,
    Measured,
    NoTrainingStep,
    Outcome,
    OutOfMemory,
    Phase,
    ScriptError,
    TimedOut,
)
from .plan import ALL, COMPROMISED, NONE, RECOMPUTE, Plan, dump_mem_opt, load_mem_opt, parse_plan, parse_plans
from .progress import Progress
from .quota import Quota
from .run import PROTOCOL_VERSION, STARTER_RANK, Described, Ended, Line, Measuring, Request, Result
from .stack import STACK_VERSION, Figures, Stack
from .study import Comparison, Repeat, StudyRecord, StudySpec, Trial, TrialState, Verdict

__all__ = [
    "ALL",
    "COMPROMISED",
    "NONE",
    "PROTOCOL_VERSION",
    "RECOMPUTE",
    "STACK_VERSION",
    "STARTER_RANK",
    "ActivationGraph",
    "BatchControl",
    "Boundary",
    "Calibration",
    "ClusterFacts",
    "Comparison",
    "Configuration",
    "Described",
    "DeviceKind",
    "Died",
    "Ended",
    "Engine",
    "Environment",
    "Facts",
    "Fallback",
    "Figures",
    "HostOutOfMemory",
    "InvalidPlan",
    "LayerNodes",
    "Line",
    "Measured",
    "Measurement",
    "Measuring",
    "MemorySplit",
    "NoTrainingStep",
    "OccurrenceNodes",
    "OptimizerFacts",
    "OutOfMemory",
    "Outcome",
    "Peaks",
    "Phase",
    "Plan",
    "PrecisionFacts",
    "Progress",
    "Quota",
    "Repeat",
    "Request",
    "Result",
    "RootFacts",
    "ScriptError",
    "Stack",
    "StudyRecord",
    "StudySpec",
    "TimedOut",
    "Trial",
    "TrialState",
    "Verdict",
    "dump_mem_opt",
    "dumps",
    "from_json",
    "load_mem_opt",
    "loads",
    "median_interval",
    "parse_plan",
    "parse_plans",
    "to_json",
]
