"""Choices that can be made in two ways while a model trains, to be searched where the user allows it.

A choice is an entry of a table at the end, its kind a class. ``made_by`` names the class of ``worker/choices`` that
makes it in the training process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import UsageError, did_you_mean
from .allocator_settings import ALLOCATOR_SETTINGS, ALLOCATOR_VARIABLES, EXPANDABLE_SEGMENTS, split_settings
from .choice_types import Choice, RefusedChoice, StackLine
from .configuration import Configuration
from .conversion import CONVERSIONS, ConversionChoice
from .engines import ENGINES, NEEDS_CUDA, Engine
from .facts import Facts
from .inference import Conversion
from .session_settings import SESSION_SETTINGS

_OTHER_BACKEND = "cudaMallocAsync"


@dataclass(frozen=True, kw_only=True)
class VariableChoice(Choice):
    """An environment variable, 0 or 1, that the engine reads."""

    variable: str

    @property
    def variables(self) -> dict[str, re.Pattern[str]]:
        """Return its variable."""
        return {self.variable: re.compile("[01]")}

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """Return its variable."""
        del before
        return {self.variable: value}

    def stack_line(self, value: str) -> StackLine:
        """Say it beside level and plans."""
        return StackLine("engine", {self.name: value})


@dataclass(frozen=True, kw_only=True)
class OptimizerChoice(Choice):
    """A keyword of torch's optimizers that is then True."""

    keyword: str
    made_by = "optimizers.OptimizerKeyword"

    def refusal_for(self, facts: Facts) -> str:
        """Refuse where no optimizer leaves it open."""
        if self.keyword == "foreach" and facts.environment.device_kind == "cuda":
            return "on a GPU torch's optimizers take it by themselves"
        if any(one.leaves_open(self.keyword) for one in facts.optimizers):
            return ""
        having = [one.name for one in facts.optimizers if self.keyword in one.settings]
        if having:
            return f"the script itself says how {' and '.join(dict.fromkeys(having))} steps (foreach, fused)"
        names = " and ".join(dict.fromkeys(one.name for one in facts.optimizers))
        return f"{names} has no {self.keyword!r}" if names else "the script has no optimizer of torch's"

    @property
    def by_hand(self) -> str:
        """Say it for the script."""
        return f"Give the optimizer `{self.keyword}=True`."

    def stack_line(self, value: str) -> StackLine:
        """Say it among the optimizer's settings."""
        return StackLine("optimizers", {self.keyword: str(bool(int(value)))})


@dataclass(frozen=True, kw_only=True)
class EngineChoice(Choice):
    """Another engine in the place of the study's: it stands in no configuration, which is one of that engine then."""

    engine: Engine
    # Inductor takes operators apart, which clusters are named by; blocks keep their names.
    renames_clusters = True

    def takes(self, value: str) -> bool:
        """Return False: it is never written."""
        del value
        return False

    def refusal_for(self, facts: Facts) -> str:
        """Return what discovery saw."""
        return facts.compile_refusal

    def stack_line(self, value: str) -> StackLine:
        """Raise: the engine has a layer of its own."""
        raise AssertionError(f"{self.name}={value} is in no configuration")


def _own_precision(facts: Facts) -> str:
    """Say how a script sees to its precision itself; empty where it is float32 throughout."""
    found = facts.precision
    if found is None:
        return ""
    if found.autocast is not None:
        return f"the script trains under autocast already ({found.autocast})"
    if found.grad_scaler:
        return "the script has a GradScaler, so it sees to its precision itself"
    return "" if found.parameters == "float32" else f"the model's parameters are {found.parameters}, not float32"


@dataclass(frozen=True, kw_only=True)
class AutocastChoice(Choice):
    """The type that the training forward is computed in."""

    dtype: str
    made_by = "precision.Autocast"
    # It puts conversions between operators: `addmm+` becomes `_to_copy+addmm+`.
    renames_clusters = True

    def refusal_for(self, facts: Facts) -> str:
        """Refuse where the script itself says something of its precision."""
        return _own_precision(facts)

    @property
    def by_hand(self) -> str:
        """Say it for the script."""
        return (
            f"Call the model in training under `torch.autocast(device, dtype=torch.{self.dtype})`, with the name of "
            "the device's type, and give its outputs to the loss as float32: `output.float()`."
        )

    def stack_line(self, value: str) -> StackLine:
        """Say it around the model."""
        del value
        return StackLine("model", {"dtype": self.dtype}, layer="autocast")


_NOT_SHARDED = "the script shards no module with fully_shard"


@dataclass(frozen=True, kw_only=True)
class GatherChoice(Choice):
    """Gathered parameters of sharded modules, kept from the forward to the backward."""

    made_by = "sharding.KeptGathered"

    def refusal_for(self, facts: Facts) -> str:
        """Refuse where no module gathers its parameters a second time."""
        if facts.sharding is None:
            return _NOT_SHARDED
        return "" if facts.sharding.gathered_twice else "no sharded module gathers its parameters a second time"

    @property
    def by_hand(self) -> str:
        """Say it for the script."""
        return (
            "Give `fully_shard` `reshard_after_forward=False`. After a forward without a backward, such as an "
            "evaluation, call `reshard()` of the sharded modules."
        )

    def stack_line(self, value: str) -> StackLine:
        """Say it around the model."""
        return StackLine("model", {"reshard_after_forward": str(not int(value))}, layer="fully_shard")


@dataclass(frozen=True, kw_only=True)
class PolicyChoice(Choice):
    """Types in the mixed precision policy of ``fully_shard``, by the policy's fields."""

    fields: tuple[tuple[str, str], ...]
    gives_back: str = ""  # the type of what the outermost modules give back, where it has to be said
    reduces_as: str = ""  # the type that gradients are added up in, unless another choice says so
    made_by = "sharding.Policy"

    def refusal_for(self, facts: Facts) -> str:
        """Refuse where the script has a policy of its own, or no float32."""
        if facts.sharding is None:
            return _NOT_SHARDED
        if facts.sharding.has_policy:
            return "the script itself gives fully_shard a mixed precision policy"
        return _own_precision(facts)

    @property
    def by_hand(self) -> str:
        """Say it for the script."""
        fields = [f"`{field}=torch.{dtype}`" for field, dtype in self.fields]
        if self.reduces_as:
            fields.append(f"`reduce_dtype=torch.{self.reduces_as}` (unless `bf16-reduce` is on)")
        outermost = f"; the outermost also `output_dtype=torch.{self.gives_back}`" if self.gives_back else ""
        return f"Give each `fully_shard` an `mp_policy` with {' and '.join(fields)}{outermost}."

    def stack_line(self, value: str) -> StackLine:
        """Say it around the model."""
        del value
        return StackLine("model", dict(self.fields), layer="fully_shard")


@dataclass(frozen=True, kw_only=True)
class AllocatorChoice(Choice):
    """A setting of torch's allocator for GPUs, ``setting:True``, in a variable that may hold others of them."""

    setting: str
    made_by = "allocator.AllocatorSetting"
    doubt = 0.25  # the same kernels and tensors; what lies idle between them is all that it can change
    gives_back_idle = True

    @property
    def variables(self) -> dict[str, re.Pattern[str]]:
        """Return both names that torch knows."""
        return dict.fromkeys(ALLOCATOR_VARIABLES, ALLOCATOR_SETTINGS)

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """Set those of both names that are set already, or else the first."""
        names = [name for name in ALLOCATOR_VARIABLES if name in before] or list(ALLOCATOR_VARIABLES[:1])
        return {name: self._joined(before.get(name, ""), value) for name in names}

    def _joined(self, before: str, value: str) -> str:
        settings = split_settings(before)
        settings.pop(self.setting, None)
        settings[self.setting] = str(bool(int(value)))
        return ",".join(f"{name}:{setting}" if setting else name for name, setting in settings.items())

    def refusal_for(self, facts: Facts) -> str:
        """Refuse without a GPU, and where the environment says it already."""
        if facts.environment.device_kind != "cuda":
            return "the script trains on CPU, and it is of torch's allocator for GPUs"
        found = facts.environment.variables or {}
        for name in ALLOCATOR_VARIABLES:
            settings = split_settings(found.get(name, ""))
            if settings.get(self.setting) == "True":
                return f"{name} has it already"
            if settings.get("backend") == _OTHER_BACKEND:
                return f"{name} leaves memory to backend:{_OTHER_BACKEND}, which has no segments"
        return ""

    @property
    def by_hand(self) -> str:
        """Say it for the shell."""
        return "Read {0} in the shell: `. ./{0}`. It has the allocator's settings."

    def stack_line(self, value: str) -> StackLine:
        """Say it below all else, with others of the allocator."""
        return StackLine("process", {self.setting: str(bool(int(value)))}, layer="allocator")


@dataclass(frozen=True, kw_only=True)
class HeapChoice(Choice):
    """A variable about the heap of the C library, where tensors of the CPU are: it is read as a process starts."""

    variable: str
    text: str  # its value
    how: str  # to have it by hand: see `by_hand`
    made_by = "heap.Variable"

    @property
    def variables(self) -> dict[str, re.Pattern[str]]:
        """Return its variable."""
        return {self.variable: re.compile(re.escape(self.text))}

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """Return its variable; nothing where the choice is not made."""
        del before
        return {self.variable: self.text} if int(value) else {}

    def refusal_for(self, facts: Facts) -> str:
        """Refuse on a GPU, without glibc, and where the environment says something of it already."""
        environment = facts.environment
        if environment.device_kind == "cuda":
            return "the script trains on a GPU, and it is about the memory of a CPU"
        if "glibc" not in environment.platform:
            return "it is about glibc, which this Python does not run on"
        return f"{self.variable} is set already" if (environment.variables or {}).get(self.variable) else ""

    @property
    def by_hand(self) -> str:
        """Say it for the shell."""
        return f"Read {{0}} in the shell: `. ./{{0}}`. It {self.how}."

    def stack_line(self, value: str) -> StackLine:
        """Say it below all else."""
        return StackLine("process", {self.name: str(bool(int(value)))}, layer="heap")


@dataclass(frozen=True, kw_only=True)
class PreloadedHeap(HeapChoice):
    """Another library than glibc for the heap, by ``LD_PRELOAD``: ``text`` is its name, and ``package`` has it."""

    variable: str = "LD_PRELOAD"
    package: str
    made_by = "heap.Preloaded"
    doubt = 0.25  # as for `AllocatorChoice`
    gives_back_idle = True

    @property
    def missing(self) -> str:
        """Say that its library is not there."""
        return f"{self.text} is not installed; Debian and Ubuntu have it in {self.package}"

    def variables_for(self, value: str, before: Mapping[str, str]) -> dict[str, str]:
        """Return its variable: the library before those that the variable names already."""
        others = [one for one in re.split(r"[: ]+", before.get(self.variable, "")) if one not in ("", self.text)]
        return {self.variable: ":".join([self.text, *others])} if int(value) else {}

    def refusal_for(self, facts: Facts) -> str:
        """Refuse where the library is not installed, and where discovery did not look for it."""
        found = facts.environment.heap_libraries
        if refusal := super().refusal_for(facts):
            return refusal
        if found is None:
            return "it was discovered before this was looked at"
        return "" if self.text in found else self.missing


TORCH_CHOICES: tuple[Choice | RefusedChoice, ...] = (
    OptimizerChoice(
        name="fused-optimizer",
        does="the optimizer's step in one fused kernel (rounds differently)",
        keyword="fused",
        excludes=("foreach-optimizer",),
    ),
    OptimizerChoice(
        name="foreach-optimizer",
        does="the optimizer's step over lists of tensors, torch's default on a GPU (rounds differently)",
        keyword="foreach",
        excludes=("fused-optimizer",),
    ),
    AutocastChoice(
        name="bf16",
        does="the training forward under autocast to bfloat16 (changes what is computed)",
        dtype="bfloat16",
        changes=(
            "matrix products and convolutions of the training forward are computed in bfloat16, with 8 significant "
            "bits in place of 24. Parameters, their gradients, the optimizer, and a loss outside the model stay in "
            "float32; a loss that the model computes itself goes by autocast's rules. Evaluation stays as it is."
        ),
        excludes=("bf16-shards",),
    ),
    RefusedChoice(
        name="fp16",
        does="the training forward under autocast to float16",
        refusal="small gradients become zero in float16 without a GradScaler around loss and optimizer's step, and "
        "those are the script's; bf16 needs none",
    ),
    GatherChoice(
        name="keep-gathered",
        does="parameters that fully_shard gathers stay from forward to backward: fewer gathers, more memory",
    ),
    PolicyChoice(
        name="bf16-shards",
        does="fully_shard gathers and computes in bfloat16 (changes what is computed)",
        fields=(("param_dtype", "bfloat16"),),
        gives_back="float32",
        reduces_as="float32",
        changes=(
            "sharded modules compute in bfloat16, with 8 significant bits in place of 24: all operators, a loss in the "
            "model, and evaluation. What the outermost of them gives back is float32, and so are their parameters, the "
            "optimizer, and a loss outside the model. Gradients are added up over processes in float32 unless "
            "`bf16-reduce` is on, too."
        ),
        excludes=("bf16",),
    ),
    PolicyChoice(
        name="bf16-reduce",
        does="fully_shard adds up gradients over processes in bfloat16 (changes what is computed)",
        fields=(("reduce_dtype", "bfloat16"),),
        changes="gradients are added up over processes in bfloat16, with 8 significant bits in place of 24.",
    ),
    AllocatorChoice(
        name="expandable-segments",
        does="memory from segments that grow, so that less of it lies idle between tensors; on a GPU",
        setting=EXPANDABLE_SEGMENTS,
    ),
    PreloadedHeap(
        name="tcmalloc",
        does="tensors on a CPU from tcmalloc in place of glibc's heap, which keeps much of what is freed",
        text="libtcmalloc_minimal.so.4",
        package="libtcmalloc-minimal4",
        how="has tcmalloc loaded before other libraries",
        excludes=("mmap-threshold",),
    ),
    HeapChoice(
        name="mmap-threshold",
        does="memory of 256 KiB or more goes back to the system as soon as it is freed (glibc; often slower)",
        variable="MALLOC_MMAP_THRESHOLD_",
        text=str(256 * 1024),
        how="has the heap's setting",
        excludes=("tcmalloc",),
    ),
)
"""Of every engine that leaves optimizer, precision and allocator to torch."""

_COMPILE = EngineChoice(name="compile", does="the model compiled by Inductor, plans on top", engine="inductor")

ENGINES_CHOICES: Mapping[Engine, tuple[Choice | RefusedChoice, ...]] = {
    "eager": (_COMPILE, *TORCH_CHOICES),
    "aot": (_COMPILE, *TORCH_CHOICES),
    "inductor": (
        RefusedChoice(name="compile", does=_COMPILE.does, refusal="engine 'inductor' compiles every setting by itself"),
        *TORCH_CHOICES,
    ),
    "onnxruntime": (*SESSION_SETTINGS, *CONVERSIONS),
    "ortmodule": (
        VariableChoice(
            name="compute-optimizer",
            does="shrink operators' inputs early (on by default)",
            variable="ORTMODULE_ENABLE_COMPUTE_OPTIMIZER",
            default=1,
        ),
        VariableChoice(
            name="embedding-sparse-optimizer",
            does="leave out padding, and words without a label (on by default)",
            variable="ORTMODULE_ENABLE_EMBEDDING_SPARSE_OPTIMIZER",
            default=1,
        ),
        RefusedChoice(
            name="mem-efficient-grad-mgmt",
            does="give gradients to parameters as they are computed",
            refusal="it needs custom autograd functions, whose extension does not compile on the torch that autotune "
            "runs on",
        ),
        RefusedChoice(name="fused-adam", does="ONNX Runtime's FusedAdam in place of Adam", refusal=NEEDS_CUDA),
        RefusedChoice(
            name="fp16-optimizer",
            does="ONNX Runtime's FP16_Optimizer around DeepSpeed's, Megatron's or Apex's optimizer",
            refusal=NEEDS_CUDA,
        ),
    ),
}


_CORRECT = "correct it where it comes from"


def choices_of(engine: Engine) -> dict[str, Choice]:
    """Return the choices of an engine that can be had."""
    return {one.name: one for one in ENGINES_CHOICES[engine] if isinstance(one, Choice)}


def refused_choices(engine: Engine) -> dict[str, RefusedChoice]:
    """Return the choices of an engine that cannot be had."""
    return {one.name: one for one in ENGINES_CHOICES[engine] if isinstance(one, RefusedChoice)}


def engine_choices(engine: Engine) -> dict[str, EngineChoice]:
    """Return the choices of an engine that have another one run the model."""
    return {name: one for name, one in choices_of(engine).items() if isinstance(one, EngineChoice)}


def choice_variables() -> dict[str, re.Pattern[str]]:
    """Return the environment variables that make choices of any engine, each with the values that it may have."""
    known = (choice for engine in ENGINES for choice in choices_of(engine).values())
    return {name: values for choice in known for name, values in choice.variables.items()}


def allowed_choices(engine: Engine, names: Iterable[str]) -> tuple[str, ...]:
    """Check the choices that a search may try both ways, and keep each once; UsageError for one that cannot be had."""
    known, refused = choices_of(engine), refused_choices(engine)
    for name in names:
        if name in refused:
            raise UsageError(f"{name!r} cannot be had: {refused[name].refusal}", hint="leave it out")
        if name not in known:
            hint = f"it has {', '.join(known) or 'none'}"
            if meant := did_you_mean(name, known):
                hint = f"{meant} {hint[0].upper()}{hint[1:]}"
            raise UsageError(f"engine {engine!r} has no choice {name!r}", hint=hint)
    return tuple(dict.fromkeys(names))


def made_choices(engine: Engine, choices: Iterable[str]) -> dict[Choice, str]:
    """Return the choices that are made otherwise than by default, of some each ``name=value``, with their values.

    UsageError for one that the engine does not have, cannot have or has twice, and for two that exclude each other.
    """
    known = choices_of(engine)
    made: dict[str, str] = {}
    for choice in choices:
        name, _, value = choice.partition("=")
        allowed_choices(engine, [name])
        if not known[name].takes(value):
            raise UsageError(f"choice {name!r} has no value {value!r}", hint=_CORRECT)
        if name in made:
            raise UsageError(f"{name!r} is chosen twice", hint=_CORRECT)
        made[name] = value
    on = [name for name, value in made.items() if value != "0"]
    for name in on:
        both = next((other for other in on if other in known[name].excludes), None)
        if both is not None:
            raise UsageError(f"{name!r} and {both!r} exclude each other", hint=_CORRECT)
    return {known[name]: value for name, value in made.items() if int(value) != known[name].default}


def converted_by(engine: Engine, choices: Iterable[str]) -> Conversion | None:
    """Return what choices that were made convert a model to; UsageError as in ``made_choices``."""
    made = made_choices(engine, choices)
    return next((choice.conversion for choice in made if isinstance(choice, ConversionChoice)), None)


def start_variables(configuration: Configuration, before: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that the process of a configuration starts with, which keep what else they hold ``before``.

    The variables of an engine itself are not among them, as the engine sees to those.
    """
    return choice_settings(configuration.engine, configuration.choices, before, of_engine=False)


def heap_libraries() -> tuple[str, ...]:
    """Return the names of the libraries that choices of any engine preload."""
    known = (choice for engine in ENGINES for choice in choices_of(engine).values())
    return tuple(dict.fromkeys(choice.text for choice in known if isinstance(choice, PreloadedHeap)))


def choice_settings(
    engine: Engine, choices: Iterable[str], before: Mapping[str, str], *, of_engine: bool = True
) -> dict[str, str]:
    """Return the environment variables of choices that were made, which keep what else they hold ``before``.

    Without ``of_engine``, the choices that the engine makes are left out. UsageError as in ``made_choices``.
    """
    settings: dict[str, str] = {}
    made = made_choices(engine, choices)
    for choice, value in ((one, value) for one, value in made.items() if of_engine or one.made_by):
        settings |= choice.variables_for(value, {**before, **settings})
    return settings
