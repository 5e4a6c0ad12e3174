"""ONNX models that the tests export from torch: one of their own, and those of the reference scripts."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import torch
from torch import nn

__all__ = ["encoder", "reference"]

_SCRIPTS = Path(__file__).parents[2] / "trials"


class _Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.mixed(self.before(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        weights = torch.softmax(query @ key.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))


class _Encoder(nn.Module):
    def __init__(self, layers, width, heads, rows):
        super().__init__()
        self.table = nn.Embedding(rows, width)
        self.layers = nn.ModuleList(_Layer(width, heads) for _ in range(layers))

    def forward(self, words):
        x = self.table(words)
        for layer in self.layers:
            x = layer(x)
        return x


def encoder(path, *, layers=2, width=128, heads=4, rows=1000):
    """A BERT-like model of ``words``, whose dimensions are ``batch`` and ``seq``; gives the path."""
    torch.manual_seed(0)
    words = torch.zeros(2, 16, dtype=torch.long)
    return _export(_Encoder(layers, width, heads, rows), {"words": words}, {"features": 2}, path)


def reference(script, path):
    """The path of the model of ``trials/SCRIPT/train.py`` at its own sizes, but for a dimension ``seq``."""
    made = runpy.run_path(str(_SCRIPTS / script / "train.py"), run_name="exported")
    torch.manual_seed(0)
    codes = torch.ones(2, 16, dtype=torch.long)
    if script == "charlm":
        return _export(made["CharTransformer"](96, 128, 6, 128, 8, 0.1), {"codes": codes}, {"logits": 2}, path)
    model = made["BertForMaskedLM"](made["Config"]())
    return _export(model, {"input_ids": codes, "labels": codes}, {"loss": 0}, path)


def _export(model, inputs, outputs, path):
    """Write a model whose inputs are all of ``batch`` and ``seq``, and its outputs as far as they have dimensions."""
    names = {name: {0: "batch", 1: "seq"} for name in inputs}
    names |= {name: {0: "batch", 1: "seq"} for name, dimensions in outputs.items() if dimensions}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter that needs no other package is the older one
        torch.onnx.export(
            model.eval(),
            tuple(inputs.values()),
            str(path),
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=names,
            dynamo=False,
            opset_version=17,
        )
    return path
