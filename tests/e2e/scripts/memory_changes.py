"""A script for a GPU with blocks and a large vocabulary, and each change that `autotune explain` tells, by hand."""

import argparse
from contextlib import nullcontext
from functools import partial

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("change", nargs="?", default="")
parser.add_argument("--reads-logits", choices=["before", "after"])
parser.add_argument("--batch-size", type=int, default=8)
options = parser.parse_args()
change = options.change
WIDTH, LENGTH, WORDS = 64, 96, 4096


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 8 * WIDTH), nn.Linear(8 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.narrow(functional.gelu(self.wide(self.norm(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(4)))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x):
        for place, block in enumerate(self.blocks):
            x = block(x) if place else block(self.words(x))
        return x


model = Model().cuda()
aten = torch.ops.aten
keep_products = partial(create_selective_checkpoint_contexts, [aten.addmm.default, aten.mm.default])
for block in {"checkpoint all blocks": model.blocks, "checkpoint half of the blocks": model.blocks[:2]}.get(change, ()):
    block.forward = partial(checkpoint, block.forward, use_reentrant=False)
for block in model.blocks if change == "checkpoint all but products" else ():
    block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=keep_products)
offloads = change == "offload activations"
around = partial(torch.autograd.graph.save_on_cpu, pin_memory=True) if offloads else nullcontext
optimizer = torch.optim.AdamW(model.parameters(), fused=True if change == "fused optimizer" else None)
times = 2 if change == "accumulate half batches" else 1
data = TensorDataset(torch.randint(0, WORDS, (512, LENGTH)), torch.randint(0, WORDS, (512, LENGTH)))
for step, (x, y) in enumerate(DataLoader(data, options.batch_size // times)):
    x, y = x.cuda(), y.cuda()
    with around():
        autocast = partial(torch.autocast, "cuda", torch.bfloat16, enabled=change == "bfloat16 autocast")
        with autocast():
            hidden = model(x)
        hidden = hidden.float()
        if change == "chunk the loss":
            pairs = zip(hidden.flatten(0, 1).chunk(8), y.flatten().chunk(8), strict=True)
            part = lambda h, t: functional.cross_entropy(model.head(h), t, reduction="sum")  # noqa: E731
            loss = sum(checkpoint(part, *pair, use_reentrant=False) for pair in pairs) / y.numel()
        else:
            with autocast():
                logits = model.head(hidden)
            logits = logits.float()
            guessed = logits.argmax(-1) if options.reads_logits == "before" else None
            loss = functional.cross_entropy(logits.flatten(0, 1), y.flatten())
            guessed = logits.argmax(-1) if options.reads_logits == "after" else guessed
    if not times == 2 or step % 2 == 0:
        optimizer.zero_grad()
    (loss / times).backward()
    if not times == 2 or step % 2:
        optimizer.step()
    if change == "free gradients early":
        optimizer.zero_grad()
    torch.cuda.empty_cache()
