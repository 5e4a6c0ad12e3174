"""Another estimator, torch-kitsune, on rows of GPUMemNet's first sheet: those at batch 8, for it runs each forward.

Needs ``pip install --no-deps --target build/timm torch-kitsune``, and what ``make bench-absent`` needs:
``PYTHONPATH=build/timm python tests/benchmarks/absent_estimator.py fake_tensor.xlsx``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).with_name("scripts")))

import beside_torchvision  # noqa: F401 - declares torchvision's operators
from absent_card import MIB, drawn, figures, is_even, read_sheet, until_one_died

_MOST_PARAMETERS = 250_000_000  # a forward of larger models takes minutes on a core


def main() -> None:
    import timm
    from kitsune.predict import predict_memory
    from timm.data import resolve_data_config

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("--models", type=int, default=100)
    options = parser.parse_args()
    sheet = {model: until_one_died(rows) for model, rows in read_sheet(options.sheet).items()}
    errors = []
    for name in drawn(sheet, "unseen", options.models):
        if not sheet[name] or not is_even(sheet[name]):
            continue
        model, row = timm.create_model(name), sheet[name][0]
        if sum(parameter.numel() for parameter in model.parameters()) > _MOST_PARAMETERS:
            continue
        shape = resolve_data_config({}, model=model)["input_size"]
        told = predict_memory(model, shape, batch_size=row.batch_size, optimizer="sgd", training=True)
        errors.append(told.total_bytes / MIB / row.measured - 1)
        print(f"{name:40}{100 * errors[-1]:+6.1f}%", flush=True)
    print(figures(errors))


if __name__ == "__main__":
    main()
