"""Train a small character transformer on the source text of Python's own standard library.

Real text, always there, nothing to download: `python train.py` works on a CPU and on a CUDA device alike.
"""

import argparse
import math
import sysconfig
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

LOG_EVERY = 20


def read_source_text(max_chars):
    """The standard library's modules in alphabetical order, as ASCII, up to `max_chars` characters."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts, total = [], 0
    for path in sorted(folder.glob("*.py")):
        parts.append(path.read_text(encoding="ascii", errors="ignore"))
        total += len(parts[-1])
        if total >= max_chars:
            break
    return "".join(parts)[:max_chars]


class Windows(Dataset):
    """Non-overlapping windows of `block_size` characters; the target is the same window, one character on."""

    def __init__(self, codes, block_size):
        self.codes = codes
        self.block_size = block_size

    def __len__(self):
        return (len(self.codes) - 1) // self.block_size

    def __getitem__(self, index):
        start = index * self.block_size
        window = self.codes[start : start + self.block_size + 1]
        return window[:-1], window[1:]


class Attention(nn.Module):
    """Causal self-attention, written out. Its weights, (batch, heads, length, length), fill most of the memory."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, future):
        batch, length, width = x.shape
        # (batch, length, 3 * width) -> three of (batch, heads, length, width / heads)
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = self.dropout(F.softmax(scores.masked_fill(future, -math.inf), dim=-1))
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, future):
        x = x + self.dropout(self.attention(self.attention_norm(x), future))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class CharTransformer(nn.Module):
    def __init__(self, vocabulary_size, block_size, layers, width, heads, dropout):
        super().__init__()
        self.characters = nn.Embedding(vocabulary_size, width)
        self.positions = nn.Embedding(block_size, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary_size)
        # True where a position may not look: at everything that comes after it.
        self.register_buffer("future", torch.ones(block_size, block_size, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, codes):
        """Codes of shape (batch, length) to logits of shape (batch, length, vocabulary)."""
        length = codes.shape[1]
        x = self.characters(codes) + self.positions(torch.arange(length, device=codes.device))
        for block in self.blocks:
            x = block(x, self.future[:length, :length])
        return self.head(self.norm(x))


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=900, help="about one pass over the text at the default batch size")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--block-size", type=int, default=128, help="characters per sample")
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--max-chars", type=int, default=2_000_000, help="how much of the standard library to read")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    parser.add_argument("--bf16", action="store_true", help="run the model under bfloat16 autocast")
    return parser.parse_args()


def main():
    options = parse_options()
    torch.manual_seed(0)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)

    text = read_source_text(options.max_chars)
    vocabulary = sorted(set(text))
    code_of = {character: code for code, character in enumerate(vocabulary)}
    codes = torch.tensor([code_of[character] for character in text])
    split = len(codes) * 9 // 10
    training = Windows(codes[:split], options.block_size)
    validation = Windows(codes[split:], options.block_size)

    model = CharTransformer(
        len(vocabulary), options.block_size, options.layers, options.width, options.heads, options.dropout
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.1)
    loader = DataLoader(training, options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    if len(loader) == 0:
        raise SystemExit(f"--batch-size {options.batch_size} is more than the {len(training)} samples there are")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(text):,} characters, {len(vocabulary)} different; {num_parameters:,} parameters on {device}")

    def loss_of(x, y):
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.bf16):
            logits = model(x)
        return F.cross_entropy(logits.float().flatten(0, 1), y.flatten())

    model.train()
    step, started = 0, time.perf_counter()
    while step < options.steps:
        for x, y in loader:
            loss = loss_of(x, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % LOG_EVERY == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * x.numel() / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.4f}  {rate:,.0f} characters/s", flush=True)
            if step == options.steps:
                break

    model.eval()
    with torch.no_grad():
        losses = [loss_of(x, y).item() for x, y in DataLoader(validation, options.batch_size, drop_last=True)]
    print(f"validation loss {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    main()
