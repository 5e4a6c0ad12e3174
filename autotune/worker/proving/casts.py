"""The script's casts in code that Inductor generates. Standard library only: needed before the script imports torch."""

from __future__ import annotations

import os


def keep_casts() -> None:
    """Have Inductor round to bfloat16 or float16 wherever the script does, in this process and in those it starts.

    Left to itself it keeps in float32 what it fuses. What it fuses depends on the plans, so that plans would seem to
    change what is computed. The variable is read as torch is imported (``torch/_inductor/config.py``, 2.11 to 2.15), by
    the processes too that compile for this one.
    """
    os.environ["TORCHINDUCTOR_EMULATE_PRECISION_CASTS"] = "1"
