"""What ONNX Runtime writes into training logs: the memory optimizer's plans, and the memory matrix.

Plans in files, ``mem_opt.json`` and the older comma string, are with the plans themselves: ``records.plan``. Standard
library only.
"""

from .columns import read_columns
from .lines import Line, clean
from .log import TrainingLog, first_to_try, read_first, read_log, read_log_text
from .matrix import read_matrix
from .opportunities import read_opportunities
from .summary import read_summary
from .table import LoggedPlan, PlanTable

__all__ = [
    "Line",
    "LoggedPlan",
    "PlanTable",
    "TrainingLog",
    "clean",
    "first_to_try",
    "read_columns",
    "read_first",
    "read_log",
    "read_log_text",
    "read_matrix",
    "read_opportunities",
    "read_summary",
]
