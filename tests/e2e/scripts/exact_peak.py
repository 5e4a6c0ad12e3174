"""The peak of a step to the byte, by torch's allocator: what a figure that was only counted is held against."""

from autotune.worker.describing.allocations import Allocations


def report_peak(step):
    """Run a step and print the most that it had allocated at once, above what there was before."""
    with Allocations() as counted:
        counted.mark()
        step()
        counted.mark()
    print("PEAK", counted.stretches[-1].peak, flush=True)
