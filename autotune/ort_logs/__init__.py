"""Parsers of ONNX Runtime's training logs: the memory optimizer's plans, and the memory matrix.

Plans in files, ``mem_opt.json`` and the older comma string, are with the plans themselves: ``records.plan``. Standard
library only.
"""
