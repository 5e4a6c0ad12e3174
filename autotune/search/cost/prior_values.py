"""All that is believed of memory and speed before a trial, in one table.

A value is a share (of a step, of a peak, of a table's figure) unless its name has a unit: ``_BYTES``, or ``_OCTAVES``
for distances between batch sizes, as logarithms to the base of two. ``_SD`` is the standard deviation of the value of
that name, or of an error whose mean is zero. Where a comment names no measurement the value is a judgement, held
against ``tests/benchmarks/search.py``. Where several values stand in a tuple, the trials choose one by its likelihood;
until then the first holds.
"""

from __future__ import annotations

from typing import Final

_MIB: Final = 2**20


class StepTime:
    """Seconds of a training step; with narrower doubts, searches of the benchmark ended sooner, at a loss."""

    # The part of the script's own step that does not grow with the batch size: launches, the optimizer. None and nearly
    # all of the step lie within the interval of 90 %.
    FIXED: Final = 0.3
    FIXED_SD: Final = 0.38
    # How far a step is off that all is measured in: a measured one of this engine, or one of another engine.
    UNIT_SD: Final = 0.1
    UNIT_OF_OTHER_ENGINE_SD: Final = 0.4
    # How speed leaves the straight line over batch sizes: smoothly, by octaves, and each size by itself; and factors of
    # both.
    CURVE_SD: Final = 0.08
    CURVE_OCTAVES: Final = 2.0
    BATCH_SIZE_SD: Final = 0.015
    ROUGHNESSES: Final = (1.0, 0.3)
    # What is peculiar to a configuration: of its step, and of what it recomputes.
    OWN_SD: Final = 0.003
    OWN_RECOMPUTE_SD: Final = 0.04
    # Without any step measured: what all rows of the plan table recompute is about a third of one.
    STEPS_PER_RECOMPUTE: Final = 3.0
    # No expected step is shorter than this share of the prior's: the model is a straight line, which may come down to
    # nothing. And no drawn step is shorter than this share of the expected one.
    LEAST_GUESS: Final = 0.05
    LEAST: Final = 0.25


class PlanTable:
    """The savings and costs of the plan table's rows, and the errors of both."""

    # What a level frees, as a share of what is stashed, and costs, as a share of a step, where no row tells.
    LAYERWISE_SAVING: Final = 0.7
    LAYERWISE_COST: Final = 0.25
    COMPROMISED_SAVING: Final = 0.1
    COMPROMISED_COST: Final = 0.03
    # What the table's times come to under an engine that fuses what was timed one by one: matrix products take theirs,
    # the others next to nothing. Measured with Inductor on CPU: whole layers cost 3 to 9 % of a step of
    # trials/charlm where the table has 35 %, and at most 5 % of a BERT-like model's where it has 41 %.
    FUSED: Final = 0.4
    # How far the table's times are off: all of them together, as timed and where an engine fuses; each row by itself.
    TIMES_SD: Final = 0.3
    FUSED_TIMES_SD: Final = 0.75
    ROW_TIME_SD: Final = 0.4
    # How far its savings are off: all of them, and each row by itself again.
    SAVINGS_SD: Final = 0.12
    # Layers side by side hold at most all that is stashed, and engines round.
    MOST_SIDE_BY_SIDE: Final = 1.05
    # How far what several kinds free overlaps, between not at all, as where clusters share no node, and as independent
    # parts of one whole do; its error is a share of the latter.
    OVERLAP: Final = 0.15
    OVERLAP_SD: Final = 0.3
    # Where the last occurrence of a kind lies at the end of the model, it is recomputed when nothing else is freed yet:
    # so much of it goes on top of the peak. Any recompute may take some of the stash.
    ROOM: Final = 0.75
    ROOM_SD: Final = 0.4
    ANY_ROOM_SD: Final = 0.03


class TabledPeak:
    """Bytes at the highest point of a training step, told from the plan table."""

    # What of a peak grows with the batch size where no engine has listed activations, and the most that ever does.
    UNLISTED: Final = 0.5
    MOST_STASHED: Final = 0.95
    # The fixed part; what plans leave of the stash; and what else grows with the batch size, as a share of the stash.
    FIXED_SD: Final = 0.3
    LEFT_SD: Final = 0.2
    PER_SAMPLE_SD: Final = 0.08
    # The part that grows with the batch size of what is held besides activations and the state of the training.
    BEYOND: Final = 0.5
    BEYOND_SD: Final = 0.4
    # How peaks leave the straight line at each batch size, with plans and without: kernels choose other workspaces.
    BATCH_SIZE_SD: Final = 0.03
    # What is peculiar to all configurations that should need the same to the byte, simulated ones too. By the plan
    # table, segments come on top: PyTorch's are of 20 MiB for 1 to 10 MiB (c10/cuda/CUDACachingAllocator.cpp).
    OWN_SD: Final = 0.008
    SEGMENT_SD_BYTES: Final = 6 * _MIB
    # Factors of all doubts about peaks; and a share of them that holds where the plan table tells and an allocator
    # counts: its rows are rarely off all at once.
    DOUBTS: Final = (1.0, 2.0)
    DOUBT_OF_ROWS: Final = 0.7


class SimulatedPeak:
    """Bytes at the highest point of a training step, simulated: a process holds more, and an allocator rounds up."""

    # How far what is held besides is off, as a share of the peak, and how much faster peaks grow than simulated ones.
    OFFSET_SD: Final = 0.3
    SLOPE_SD: Final = 0.08
    # What an engine changes that fuses operators, which are simulated one by one, and how alike that is for plans that
    # leave about as much; shares of a step without plans. Measured on landscapes of scripts under Inductor: of what two
    # trials leave unknown, one in ten then lies beyond two standard deviations, and three in ten did without.
    FUSED_SD: Final = 0.03
    FUSED_ALIKE: Final = 0.3


class ResidentSet:
    """Deviations of a process's resident set, the peak on CPU, from what is held in it: the heap has gaps."""

    # How much faster it may grow than what is held, and how much less plans may free.
    SLOPE_SD: Final = 0.3
    FREED_SD: Final = 0.3
    # What a step adds beyond what is known to be held. Measured on trials/charlm: it grows with the batch size; taken
    # for fixed, peaks were off by 18 %.
    BEYOND_SD: Final = 0.3
    # What is peculiar to a batch size and those near it.
    BATCH_SIZE_SD: Final = 0.05
    BATCH_SIZE_OCTAVES: Final = 1.0


class EngineEffect:
    """The changes that an engine makes by running the model at all, without any plans."""

    # Of a step and of a peak. 0.02 of either was tried: engines differ from the script as it is by more.
    SD: Final = 0.05
    # Its code and graphs stay in the resident set. Measured on torch 2.13: 36 to 52 MiB by AOTAutograd, in scripts with
    # and without much to trace; 115 MiB by Inductor, whose tools stay too.
    RESIDENT_BYTES: Final = 45 * _MIB
    RESIDENT_SD_BYTES: Final = 15 * _MIB
    COMPILER_RESIDENT_BYTES: Final = 110 * _MIB
    COMPILER_RESIDENT_SD_BYTES: Final = 40 * _MIB


class ChoiceEffect:
    """The changes by a choice of the engine that was never tried: nothing is expected of it, and much may be."""

    # Half the time of a step, perhaps.
    TIME_SD: Final = 0.4
    # What is held whatever the batch size, as a share of the peak, and what is kept of each sample.
    PEAK_SD: Final = 0.1
    PER_SAMPLE_SD: Final = 0.3


class Noise:
    """The scatter of measurements of one and the same thing."""

    STEP_TIMES: Final = (0.007, 0.015, 0.03, 0.06)
    # From process to process: on GPUs one in five was some 7 % slower. It tells how far a trial's own figure is to be
    # believed in the end; during a search it would keep too much in doubt.
    PROCESSES: Final = 0.03
    # The resident set is another one in each process, by some per cent; what an allocator counts is not.
    PEAKS: Final = (0.003, 0.01)
    RESIDENT_SETS: Final = (0.03, 0.05)
    # An answer has to fit in the process of its trial, and in those of a confirmation: four, by judgement. The mean and
    # the standard deviation of the highest of so many values of a standard normal distribution, for what is untried and
    # for what has had its trial.
    PROCESSES_OF_ANSWER: Final = 5
    HIGHEST_OF_ALL: Final = (1.163, 0.669)
    HIGHEST_OF_CONFIRMATION: Final = (1.029, 0.701)
    # Sizes of the plan table's error where it is held to some simulated peaks and tells of all others.
    LIKENESS: Final = (0.01, 0.03)
    # Two settings that differ at all differ by this much.
    LEAST_SD: Final = 1e-4


class Evidence:
    """The evidence that trials have to give before another prior or noise than the first is believed."""

    # Fewer values than this tell nothing about either.
    FEWEST: Final = 3
    # How much likelier, as a logarithm, what is measured has to be under each further prior.
    PENALTY: Final = 2.0
