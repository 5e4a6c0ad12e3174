"""Train a small transformer to tell which module of Python's standard library a snippet comes from.

Real text, always there, nothing to download: `python train.py` works on a CPU and on a CUDA device alike.
"""

import argparse
import math
import re
import sysconfig
import time
import zlib
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

LOG_EVERY = 20
WORD = re.compile(r"\w+|[^\w\s]")


def largest_modules(num_modules):
    """The files of the largest modules of the standard library, the largest first."""
    paths = Path(sysconfig.get_path("stdlib")).glob("*.py")
    return sorted(paths, key=lambda path: (-path.stat().st_size, path.name))[:num_modules]


class Snippets(Dataset):
    """Non-overlapping windows of `length` words; the target is the number of the module."""

    def __init__(self, paths, length, vocabulary_size):
        self.texts = []
        for path in paths:
            words = WORD.findall(path.read_text(encoding="utf-8", errors="ignore"))
            # Words are hashed, so that there is no vocabulary to build.
            self.texts.append(torch.tensor([zlib.crc32(word.encode()) % vocabulary_size for word in words]))
        self.length = length
        self.places = [
            (module, start)
            for module, codes in enumerate(self.texts)
            for start in range(0, len(codes) - length, length)
        ]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, index):
        module, start = self.places[index]
        return self.texts[module][start : start + self.length], module


class Attention(nn.Module):
    """Self-attention, written out. Its weights are (batch, heads, length, length)."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        # (batch, length, 3 * width) -> three of (batch, heads, length, width / heads)
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Classifier(nn.Module):
    """Blocks over words, then a wide head over their mean. The head has most of the parameters."""

    def __init__(self, vocabulary_size, num_classes, length, layers, width, heads, head_width, dropout):
        super().__init__()
        self.words = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Sequential(
            nn.Linear(width, head_width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(head_width, head_width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(head_width, num_classes),
        )

    def forward(self, codes):
        """Codes of shape (batch, length) to logits of shape (batch, classes)."""
        x = self.words(codes) + self.positions(torch.arange(codes.shape[1], device=codes.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1))


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are made orthogonal (Jordan et al., 2024), in float32; for matrices only.

    A step takes as long with any batch size: 15 products of matrices for each weight.
    """

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                average.lerp_(weight.grad, 1 - group["momentum"])
                step = orthogonalized(average.lerp(weight.grad, 1 - group["momentum"]))
                # Steps as large as AdamW's (Liu et al., 2025), so that both take the same learning rate.
                weight.sub_(step, alpha=0.2 * group["lr"] * math.sqrt(max(weight.shape)))


def orthogonalized(matrix, iterations=5):
    """The nearest matrix with singular values of about 1, by Newton's and Schulz's iteration."""
    x = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    x = x / (x.norm() + 1e-7)
    for _ in range(iterations):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x if matrix.shape[0] <= matrix.shape[1] else x.T


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=800, help="two passes at the default batch size")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=64, help="words per snippet")
    parser.add_argument("--modules", type=int, default=80, help="how many modules to tell apart")
    parser.add_argument("--vocabulary-size", type=int, default=2**13)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--head-width", type=int, default=1024)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    return parser.parse_args()


def main():
    options = parse_options()
    torch.manual_seed(0)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)

    snippets = Snippets(largest_modules(options.modules), options.length, options.vocabulary_size)
    training, validation = random_split(snippets, [0.9, 0.1], generator=torch.Generator().manual_seed(0))
    loader = DataLoader(training, options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    model = Classifier(
        options.vocabulary_size,
        options.modules,
        options.length,
        options.layers,
        options.width,
        options.heads,
        options.head_width,
        options.dropout,
    ).to(device)
    matrices = [weight for part in (model.blocks, model.head) for weight in part.parameters() if weight.ndim == 2]
    others = [weight for weight in model.parameters() if all(weight is not matrix for matrix in matrices)]
    optimizers = [Muon(matrices, options.lr), torch.optim.AdamW(others, options.lr)]
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(training):,} snippets of {options.modules} modules; {num_parameters:,} parameters on {device}")

    model.train()
    step, started = 0, time.perf_counter()
    while step < options.steps:
        for codes, modules in loader:
            codes, modules = codes.to(device, non_blocking=True), modules.to(device, non_blocking=True)
            loss = F.cross_entropy(model(codes), modules)
            model.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            if step % LOG_EVERY == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * len(codes) / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.4f}  {rate:,.0f} snippets/s", flush=True)
            if step == options.steps:
                break

    model.eval()
    with torch.no_grad():
        right = sum(
            (model(codes.to(device)).argmax(dim=1) == modules.to(device)).sum().item()
            for codes, modules in DataLoader(validation, options.batch_size)
        )
    print(f"told the module of {100 * right / len(validation):.1f} % of {len(validation):,} other snippets")


if __name__ == "__main__":
    main()
