"""Look at what autotune believes of a GPU, fact by fact: ``python -m trials.sittings.facts FILE``.

Each fact stands beside what is believed of it. ``seen`` is what there was, ``holds`` whether it is as believed, null
where nothing is. What fails is told as its fact, and stops no other. The file is written before and after each of them:
a fact that hangs or takes its process along is told as well, and another process goes on behind it.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = (
    "torch triton transformers accelerate timm numpy scipy psutil nvidia-ml-py optuna SQLAlchemy typer rich pytest"
)
_VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
)
# A fact that takes longer hangs.
_LONGEST_S = 25.0
_NOT_ENDED = "it hung, or took its process along"
_KERNELS = ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION")
_GIB = 1 << 30
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Fact:
    """One thing that was looked at, in ``seconds``."""

    name: str
    believed: str
    seen: Any
    holds: bool | None
    seconds: float


Look = Callable[["Device"], tuple[Any, bool | None]]
_LOOKS: list[tuple[str, str, Look]] = []


def _fact(name: str, believed: str = "") -> Callable[[Look], Look]:
    """Register what looks at a fact: it gives what it has seen, and whether that is as believed."""

    def register(look: Look) -> Look:
        _LOOKS.append((name, believed, look))
        return look

    return register


class Device:
    """The first GPU, as NVML and torch have it; each is opened when it is first asked for."""

    def __init__(self) -> None:
        self._torch: Any = None
        self._nvml: Any = None
        self._handle: Any = None

    @property
    def torch(self) -> Any:
        """Import the module."""
        if self._torch is None:
            import torch

            self._torch = torch
        return self._torch

    @property
    def nvml(self) -> Any:
        """Initialize the module pynvml, once."""
        if self._nvml is None:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        return self._nvml

    def ask(self, function: str, *arguments: Any) -> Any:
        """Ask NVML something of the device; gives its answer, or its refusal in words."""
        nvml = self.nvml
        try:
            return getattr(nvml, function)(self._handle, *arguments)
        except nvml.NVMLError as error:
            return f"refused: {error}"

    @property
    def used_mib(self) -> int:
        """Return what NVML has as used on the whole device."""
        return int(self.ask("nvmlDeviceGetMemoryInfo", self.nvml.nvmlMemory_v2).used) // _MIB

    @property
    def outside_mib(self) -> int:
        """Return what is used on the device and is not in the allocator of this process."""
        return self.used_mib - self.torch.cuda.memory_reserved() // _MIB

    @property
    def processes(self) -> Any:
        """Return the pids that NVML lists, with their MiB."""
        listed = self.ask("nvmlDeviceGetComputeRunningProcesses")
        return listed if isinstance(listed, str) else {one.pid: (one.usedGpuMemory or 0) // _MIB for one in listed}

    def milliseconds(self, work: Callable[[], Any], times: int = 20) -> list[float]:
        """Measure how long the device takes for something, each time."""
        cuda = self.torch.cuda
        work()
        events = [cuda.Event(enable_timing=True) for _ in range(times + 1)]
        events[0].record()
        for event in events[1:]:
            work()
            event.record()
        events[-1].synchronize()
        return [before.elapsed_time(after) for before, after in itertools.pairwise(events)]

    def median_ms(self, work: Callable[[], Any], times: int = 20) -> float:
        """Return the median of these."""
        return round(statistics.median(self.milliseconds(work, times)), 3)


def _first_line(path: str, beginning: str = "") -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(beginning):
            return line.removeprefix(beginning).strip(": \t")
    return ""


@_fact("host")
def _host(_: Device) -> tuple[Any, bool | None]:
    return {
        "kernel": platform.release(),
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first_line("/proc/cpuinfo", "model name"),
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "shm_mib": shutil.disk_usage("/dev/shm").total // _MIB,  # noqa: S108 - only its size
    }, None


@_fact("tools", "there is a C compiler with Python's headers: Triton and Inductor need both")
def _tools(_: Device) -> tuple[Any, bool | None]:
    seen = {name: shutil.which(name) is not None for name in ("gcc", "g++", "make", "git", "nvcc", "ptxas")}
    seen["Python.h"] = Path(sysconfig.get_path("include"), "Python.h").exists()
    return seen, seen["gcc"] and seen["Python.h"]


@_fact("packages")
def _packages(_: Device) -> tuple[Any, bool | None]:
    seen = {"python": sys.version.split()[0]}
    for name in _PACKAGES.split():
        try:
            seen[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            seen[name] = "-"
    return seen, None


@_fact("variables", "none of the allocator's")
def _variables(_: Device) -> tuple[Any, bool | None]:
    seen = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    return seen, not any("ALLOC_CONF" in name for name in seen)


@_fact("/proc", "memory's high-water mark can be reset, and waiting for a processor is counted")
def _proc(_: Device) -> tuple[Any, bool | None]:
    Path("/proc/self/clear_refs").write_text("5")
    waits = Path("/proc/self/schedstat").read_text().split()
    return {"schedstat": waits, "pids": _first_line("/proc/self/status", "NSpid")}, len(waits) == 3


@_fact("NVML", "it starts within a second")
def _nvml(device: Device) -> tuple[Any, bool | None]:
    began = time.perf_counter()
    nvml = device.nvml
    took_s = time.perf_counter() - began
    return {
        "seconds": round(took_s, 3),
        "driver": nvml.nvmlSystemGetDriverVersion(),
        "name": device.ask("nvmlDeviceGetName"),
        "uuid": device.ask("nvmlDeviceGetUUID"),
        "mig": device.ask("nvmlDeviceGetMigMode"),
        "ecc": device.ask("nvmlDeviceGetEccMode"),
        "persistence": device.ask("nvmlDeviceGetPersistenceMode"),
        "compute_mode": device.ask("nvmlDeviceGetComputeMode"),
    }, took_s < 1


def _conditions(device: Device) -> dict[str, Any]:
    used = device.ask("nvmlDeviceGetProcessUtilization", 0)
    return {
        "sm_mhz": device.ask("nvmlDeviceGetClockInfo", device.nvml.NVML_CLOCK_SM),
        "milliwatts": device.ask("nvmlDeviceGetPowerUsage"),
        "reasons": device.ask("nvmlDeviceGetCurrentClocksEventReasons"),
        "celsius": device.ask("nvmlDeviceGetTemperature", device.nvml.NVML_TEMPERATURE_GPU),
        "millijoules": device.ask("nvmlDeviceGetTotalEnergyConsumption"),
        "used_by": used if isinstance(used, str) else {one.pid: one.smUtil for one in used},
    }


@_fact("device at rest", "nobody is on it")
def _at_rest(device: Device) -> tuple[Any, bool | None]:
    first, second = (device.ask("nvmlDeviceGetMemoryInfo", *version) for version in ((), (device.nvml.nvmlMemory_v2,)))
    memory = {name: getattr(second, name) // _MIB for name in ("total", "reserved", "free", "used")}
    began = time.perf_counter()
    processes = device.processes
    took_us = (time.perf_counter() - began) * 1e6
    seen = {
        "memory_mib": memory,
        "used_v1_mib": first.used // _MIB,
        "processes": processes,
        "listing_us": round(took_us),
    }
    return seen | _conditions(device), not processes


@_fact("torch", "importing it opens no device")
def _torch(device: Device) -> tuple[Any, bool | None]:
    began = time.perf_counter()
    torch = device.torch
    seen = {"seconds": round(time.perf_counter() - began, 1), "version": torch.__version__, "cuda": torch.version.cuda}
    return seen | {"threads": torch.get_num_threads()}, not torch.cuda.is_initialized()


@_fact("a child forked before a device is opened can open it", "its exit status is 0")
def _forked(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    if (pid := os.fork()) == 0:
        try:
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status, status == 0


@_fact("a process's context", "it holds 300 to 700 MiB, and NVML lists its own pid")
def _context(device: Device) -> tuple[Any, bool | None]:
    cuda, before = device.torch.cuda, device.used_mib
    device.torch.zeros(1, device="cuda")
    cuda.synchronize()
    held = device.used_mib - before - cuda.memory_reserved() // _MIB
    processes = device.processes
    is_listed = not isinstance(processes, str) and os.getpid() in processes
    return {"mib": held, "processes": processes, "pid": os.getpid()}, 300 <= held <= 700 and is_listed


@_fact("torch and NVML", "they call the device alike, and count its memory within what NVML has reserved")
def _alike(device: Device) -> tuple[Any, bool | None]:
    free, total = device.torch.cuda.mem_get_info()
    properties = device.torch.cuda.get_device_properties(0)
    memory = device.ask("nvmlDeviceGetMemoryInfo", device.nvml.nvmlMemory_v2)
    uuid = device.ask("nvmlDeviceGetUUID")
    seen = {
        "name": properties.name,
        "uuids": [str(properties.uuid), uuid],
        "total_mib": [total // _MIB, memory.total // _MIB],
        "free_mib": [free // _MIB, memory.free // _MIB],
        "reserved_mib": memory.reserved // _MIB,
        "multiprocessors": properties.multi_processor_count,
        "cudnn": device.torch.backends.cudnn.version(),
    }
    return seen, str(properties.uuid) in uuid and 0 <= memory.total - total <= memory.reserved + 64 * _MIB


@_fact("NVML follows the allocator", "4 GiB more and less, within 4 MiB")
def _follows(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    torch.ones(1, dtype=torch.uint8, device="cuda")  # its kernel is loaded
    torch.cuda.synchronize()
    before = device.used_mib
    held = torch.ones(4 * _GIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    more = device.used_mib - before
    processes = device.processes
    del held
    torch.cuda.empty_cache()
    less = device.used_mib - before
    return {"more": more, "left": less, "processes": processes}, abs(more - 4096) <= 4 and abs(less) <= 4


@_fact("libraries outside the allocator", "all of them together hold less than 512 MiB")
def _libraries(device: Device) -> tuple[Any, bool | None]:
    torch, seen = device.torch, {}
    functional = torch.nn.functional
    wide = torch.randn(4096, 4096, device="cuda")
    half = wide.bfloat16()
    images, kernels = torch.randn(8, 64, 56, 56, device="cuda"), torch.randn(64, 64, 3, 3, device="cuda")
    query = torch.randn(4, 12, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    def attend() -> None:
        functional.scaled_dot_product_attention(query, query, query, is_causal=True, dropout_p=0.125).sum().backward()

    works: dict[str, Callable[[], Any]] = {
        "cuBLAS float32": lambda: wide @ wide,
        "cuBLAS bfloat16": lambda: half @ half,
        "cuBLASLt": lambda: functional.linear(half, half, half[0]),
        "cuDNN convolution": lambda: functional.conv2d(images, kernels),
        "attention": attend,
    }
    for name, work in works.items():
        before, began = device.outside_mib, time.perf_counter()
        work()
        torch.cuda.synchronize()
        seen[name] = {"mib": device.outside_mib - before, "seconds": round(time.perf_counter() - began, 2)}
    return seen, sum(one["mib"] for one in seen.values()) < 512


@_fact("attention's kernel", "cuDNN or flash in bfloat16 without a mask")
def _kernels(device: Device) -> tuple[Any, bool | None]:
    torch, seen = device.torch, {}
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for dropout in (0.0, 0.1, 0.125):
            for is_masked in (False, True):
                query = torch.randn(2, 8, 512, 64, device="cuda", dtype=dtype, requires_grad=True)
                mask = torch.zeros(2, 1, 512, 512, device="cuda", dtype=dtype) if is_masked else None
                chosen = torch._fused_sdp_choice(query, query, query, mask, dropout, not is_masked)
                kind = f"{str(dtype)[6:]}, dropout {dropout}{', masked' if is_masked else ''}"
                seen[kind] = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}.get(chosen, chosen)
    return seen, seen["bfloat16, dropout 0.0"] in ("flash", "cudnn")


@_fact("drawing again", "from a generator's state each kernel draws the same, and without it others")
def _draws_again(device: Device) -> tuple[Any, bool | None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch, seen = device.torch, {}
    generator, functional = torch.cuda.default_generators[0], torch.nn.functional

    def is_exact(draw: Callable[[], Any]) -> bool:
        state = generator.get_state()
        first, other = draw(), draw()
        generator.set_state(state)
        again = draw()
        return bool(torch.equal(first, again)) and not torch.equal(first, other)

    numbers = torch.randn(1 << 20, device="cuda")
    query = torch.randn(2, 8, 512, 64, device="cuda", dtype=torch.bfloat16)
    seen["dropout"] = is_exact(lambda: functional.dropout(numbers, 0.1))
    for name in _KERNELS:
        with sdpa_kernel(getattr(SDPBackend, name)):
            try:
                attention = functional.scaled_dot_product_attention
                seen[name] = is_exact(lambda: attention(query, query, query, is_causal=True, dropout_p=0.125))  # noqa: B023
            except RuntimeError as error:
                seen[name] = str(error)[:120]
    return seen, all(value is True for value in seen.values())


@_fact("gradients of attention, twice", "flash and efficient give the same bits where they are told to")
def _deterministic(device: Device) -> tuple[Any, bool | None]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    torch, seen = device.torch, {}
    for name in _KERNELS:
        query = torch.randn(4, 16, 2048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        for is_told in (False, True):
            torch.use_deterministic_algorithms(is_told)
            with sdpa_kernel(getattr(SDPBackend, name)):
                try:
                    found = []
                    for _ in range(2):
                        out = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
                        found += torch.autograd.grad(out.float().pow(2).sum(), query)
                    said = bool(torch.equal(*found))
                except RuntimeError as error:
                    said = str(error)[:120]
            seen[f"{name}{', told to' if is_told else ''}"] = said
    torch.use_deterministic_algorithms(False)
    return seen, seen["FLASH_ATTENTION, told to"] is True and seen["EFFICIENT_ATTENTION, told to"] is True


@_fact("cuDNN's gradients of attention, as proofs compute them", "the same bits each time, within 2 % of cuDNN's own")
def _replaced(device: Device) -> tuple[Any, bool | None]:
    from autotune.worker.proving.deterministic import attention_backward

    torch, seen = device.torch, {}
    aten = torch.ops.aten
    for is_causal in (True, False):
        query, key, value, grad = (torch.randn(4, 8, 1024, 64, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        name = "causal" if is_causal else "whole"
        try:
            forward = aten._scaled_dot_product_cudnn_attention(query, key, value, None, True, 0.0, is_causal)
            out, logsumexp, cum_q, cum_k, max_q, max_k, seed, offset, _ = forward
            given = (grad, query, key, value, out, logsumexp)
            theirs = aten._scaled_dot_product_cudnn_attention_backward(
                *given, seed, offset, None, cum_q, cum_k, max_q, max_k, 0.0, is_causal
            )
            own, again = (attention_backward(*given, is_causal=is_causal) for _ in range(2))
        except RuntimeError as error:
            seen[name] = str(error)[:120]
            continue
        largest = [
            float((a.float() - b.float()).abs().max() / b.float().abs().max()) for a, b in zip(own, theirs, strict=True)
        ]
        seen[name] = {"is_repeated": all(map(torch.equal, own, again)), "largest_share": max(largest)}
    return seen, all(
        isinstance(one, dict) and one["is_repeated"] and one["largest_share"] < 0.02 for one in seen.values()
    )


@_fact("a limit of the allocator", "more is out of memory, and the process goes on when it is lifted")
def _limit(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    torch.cuda.set_per_process_memory_fraction(2 * _GIB / torch.cuda.mem_get_info()[1])
    try:
        torch.empty(3 * _GIB, dtype=torch.uint8, device="cuda")
        refusal = ""
    except torch.OutOfMemoryError as error:
        refusal = str(error)[:200]
    torch.cuda.set_per_process_memory_fraction(1.0)
    held = torch.empty(3 * _GIB, dtype=torch.uint8, device="cuda").numel()
    torch.cuda.empty_cache()
    statistics_ = torch.cuda.memory_stats()
    seen = {"refusal": refusal, **{name: statistics_.get(name) for name in ("num_ooms", "num_alloc_retries")}}
    return seen, bool(refusal) and held == 3 * _GIB


@_fact("a graph of CUDA", "it is captured and runs again")
def _graph(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    numbers = torch.ones(1 << 20, device="cuda")
    numbers * 2
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(20):
            numbers.add_(1)
    before = float(numbers[0])
    graph.replay()
    added = float(numbers[0]) - before
    eager = device.median_ms(lambda: [numbers.add_(1) for _ in range(20)])
    return {"added": added, "replay_ms": device.median_ms(graph.replay), "eager_ms": eager}, added == 20


@_fact("ceilings", "a copy moves more than 1 TB/s")
def _ceilings(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    source, target = (torch.empty(_GIB // 2, dtype=torch.float32, device="cuda") for _ in range(2))
    copies = 2 * source.nbytes / device.median_ms(lambda: target.copy_(source)) / 1e9
    single = torch.randn(8192, 8192, device="cuda")
    half, operations = single.bfloat16(), 2 * 8192**3 / 1e9
    seen = {
        "copy_tb_per_s": round(copies, 2),
        "bfloat16_tflops": round(operations / device.median_ms(lambda: half @ half)),
    }
    for name, allowed in (("float32_tflops", False), ("tf32_tflops", True)):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        seen[name] = round(operations / device.median_ms(lambda: single @ single, 5))
    torch.backends.cuda.matmul.allow_tf32 = False
    return seen, copies > 1


@_fact("launches", "one takes the host less than 10 microseconds")
def _launches(device: Device) -> tuple[Any, bool | None]:
    torch = device.torch
    number = torch.zeros(8, device="cuda")
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(2000):
        number + 1
    took_us = (time.perf_counter() - began) / 2000 * 1e6
    torch.cuda.synchronize()
    sleep_ms = device.median_ms(lambda: torch.cuda._sleep(1_000_000))
    return {"host_us": round(took_us, 1), "a million cycles of _sleep, ms": sleep_ms}, took_us < 10


@_fact("noise of the device", "100 equal products of matrices scatter by less than 2 %")
def _noise(device: Device) -> tuple[Any, bool | None]:
    half = device.torch.randn(8192, 8192, device="cuda").bfloat16()
    device.milliseconds(lambda: half @ half, 200)
    taken = device.milliseconds(lambda: half @ half, 100)
    scatter = statistics.stdev(taken) / statistics.mean(taken)
    return {"scatter": round(scatter, 4), "fastest_ms": min(taken), "slowest_ms": max(taken)}, scatter < 0.02


@_fact("attention with an explicit mask", "it takes longer, forward and backward, than without one")
def _masked(device: Device) -> tuple[Any, bool | None]:
    torch, seen = device.torch, {}
    cases = {"gpt2, batch 8": (8, 12, 1024, True), "bert-large, batch 32": (32, 16, 512, False)}
    for name, (batch, heads, length, is_causal) in cases.items():
        made = (
            torch.randn(batch, heads, length, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            for _ in range(3)
        )
        query, key, value = made
        ones = torch.ones(batch, 1, length, length, dtype=torch.bool, device="cuda")
        gradient = torch.randn_like(query)

        def train(gradient: Any, inputs: tuple[Any, ...], **how: Any) -> None:
            torch.nn.functional.scaled_dot_product_attention(*inputs, **how).backward(gradient)

        inputs = (query, key, value)
        without = device.median_ms(lambda: train(gradient, inputs, is_causal=is_causal), 8)  # noqa: B023
        mask = ones.tril() if is_causal else ones
        seen[name] = [without, device.median_ms(lambda: train(gradient, inputs, attn_mask=mask), 8)]  # noqa: B023
    return seen, all(without < masked for without, masked in seen.values())


@_fact("gpt2 by batch size", "at batch 8 and 16 launching takes the host less than 0.9 of the step")
def _gpt2(device: Device) -> tuple[Any, bool | None]:
    import transformers

    torch, seen = device.torch, {}
    with torch.device("cuda"):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(use_cache=False))
    model.train()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch, is_recomputed in ((2, False), (4, False), (8, False), (16, False), (8, True)):
        tokens = torch.randint(0, 50000, (batch, 1024), device="cuda")
        if is_recomputed:
            model.gradient_checkpointing_enable()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()

        def step(tokens: Any) -> None:
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        for _ in range(3):
            step(tokens)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(4):
            step(tokens)
        host_ms = (time.perf_counter() - began) / 4 * 1e3
        torch.cuda.synchronize()
        peaks = [torch.cuda.max_memory_allocated() / _GIB, torch.cuda.max_memory_reserved() / _GIB]
        seen[f"{batch}{', blocks recomputed' if is_recomputed else ''}"] = {
            "step_ms": device.median_ms(lambda: step(tokens), 8),  # noqa: B023
            "host_ms": round(host_ms, 1),
            "allocated_gib, reserved_gib": [round(peak, 2) for peak in peaks],
        }
    return seen, all(seen[size]["host_ms"] < 0.9 * seen[size]["step_ms"] for size in ("8", "16"))


@_fact("device at work", "its clock is not held back by heat, nor by a brake of its power supply")
def _at_work(device: Device) -> tuple[Any, bool | None]:
    half = device.torch.randn(8192, 8192, device="cuda").bfloat16()
    for _ in range(600):  # about a second
        half @ half
    time.sleep(0.4)
    seen = _conditions(device)
    device.torch.cuda.synchronize()
    held_back = 0x8 | 0x20 | 0x40 | 0x80  # slowdowns by hardware and by heat; a power cap is no defect
    reasons = seen["reasons"]
    return seen, None if isinstance(reasons, str) else not reasons & held_back


def look(path: Path) -> list[Fact]:
    """Look at those that the file does not have yet, and write it before and after each.

    Ends the process where one takes too long, and after an error that a device does not recover from.
    """
    device, found = Device(), read(path)
    known = {fact.name for fact in found}
    for name, believed, at in _LOOKS:
        if name in known:
            continue
        _write(path, [*found, Fact(name, believed, _NOT_ENDED, holds=False, seconds=0.0)])
        faulthandler.dump_traceback_later(_LONGEST_S, exit=True, file=sys.__stderr__)
        began = time.perf_counter()
        is_lost = False
        try:
            seen, holds = at(device)
        except Exception as error:
            seen, holds = f"{type(error).__name__}: {str(error)[:400]}", False
            is_lost = "CUDA error" in str(error)
        faulthandler.cancel_dump_traceback_later()
        found.append(Fact(name, believed, seen, holds, round(time.perf_counter() - began, 2)))
        _write(path, found)
        said = {True: "as believed", False: "NOT as believed", None: "noted"}[holds]
        print(f"{name}: {said}, {found[-1].seconds:.1f} s: {json.dumps(seen, default=str)}", flush=True)
        if is_lost:
            os._exit(1)
    return found


def read(path: Path) -> list[Fact]:
    """Read what was looked at so far."""
    return [Fact(**fact) for fact in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def _write(path: Path, facts: list[Fact]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps([dataclasses.asdict(fact) for fact in facts], indent=1, default=str) + "\n")
    new.replace(path)


def main() -> None:
    """Look in processes of their own, and say at the end what is not as believed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--here", action="store_true", help="look in this process")
    options = parser.parse_args()
    if options.here:
        faulthandler.enable()
        look(options.file)
        return
    for _ in _LOOKS:  # each process looks at one at least
        if subprocess.call((sys.executable, "-m", "trials.sittings.facts", str(options.file), "--here")) == 0:
            break
    found = read(options.file)
    wrong = [fact for fact in found if fact.holds is False]
    print(f"{len(found)} facts, {len(wrong)} not as believed{':' if wrong else ''}")
    for fact in wrong:
        print(f"  {fact.name}: believed was: {fact.believed or 'that it can be looked at'}")


if __name__ == "__main__":
    main()
