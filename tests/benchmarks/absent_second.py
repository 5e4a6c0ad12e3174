"""Peaks predicted for a card that is not there, against a second sheet of GPUMemNet's: other scripts, with Adam.

Six scripts of torchvision's and timm's models trained for an epoch on an A100-40GB, without ``cudnn.benchmark``. Fetch
``Test_Pipeline`` of itu-rad/GPUMemNet, which is not part of this project:
``python tests/benchmarks/absent_second.py Test_Pipeline/GPUMemNet_CNN.xlsx Test_Pipeline/cnn_models``, with timm and
torchvision as for ``make bench-absent``.

The scripts run unmodified. They print a table by ``torchsummary``, which is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from absent_card import CARD, Row, figures, follow_script, make_images, whole

SCRIPTS = {
    "vgg": "vgg.py",
    "resnet": "resnet50.py",
    "Xception": "Xception.py",
    "mobilenet": "mobilenet.py",
    "efficientnet": "efficientNet.py",
    "inception": "inception.py",
}


def read_sheet(path: Path) -> Iterator[Row]:
    """Read the rows; a model is named in its first one only."""
    import openpyxl

    model = ""
    sheet = openpyxl.load_workbook(path, read_only=True, data_only=True).worksheets[0]
    for name, batch_size, measured, _, _, _, estimate, *_ in sheet.iter_rows(min_row=2, values_only=True):
        model = name or model
        if isinstance(batch_size, int):
            yield Row(model, batch_size, int(measured), float(estimate))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sheet", type=Path)
    parser.add_argument("scripts", type=Path)
    options = parser.parse_args()
    rows, scripts = list(read_sheet(options.sheet)), options.scripts.resolve()
    errors = []
    with tempfile.TemporaryDirectory() as folder:
        images = make_images(Path(folder) / "images")
        (images / "val").symlink_to(images / "validation")
        os.chdir(folder)
        for row in rows:
            arguments = (scripts / SCRIPTS[row.model], "--batch_size", row.batch_size, "--data_dir", images)
            trace = follow_script(arguments, Path(folder) / "runs")
            if isinstance(trace, str):
                raise SystemExit(f"{row.model}: {trace}")
            errors.append(whole(trace) / row.measured - 1)
            print(f"{row.model:14}{row.batch_size:5}{row.measured:8,} MiB {100 * errors[-1]:+6.1f}%", flush=True)
    print(f"{CARD.title}: {figures(errors)}")
    print(f"FakeTensor, by GPUMemNet: {figures([row.fake_tensor / row.measured - 1 for row in rows])}")


if __name__ == "__main__":
    main()
