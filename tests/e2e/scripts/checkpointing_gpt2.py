"""A GPT-2 with random weights, and its gradient checkpointing on, off, or on where it does nothing.

With a second argument it prints the exact peak of its third step, and ends.
"""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

from exact_peak import report_peak
from toy import report

VOCABULARY, LENGTH, BATCH = 128, 64, 16


def make_model():
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=64, n_layer=6, n_head=4, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config)


def main(way):
    torch.manual_seed(0)
    model = make_model().train()
    if way in ("enabled", "evaluation"):
        model.gradient_checkpointing_enable()
    if way == "evaluation":
        model.transformer.eval()  # so as to have no dropout
    if way == "elsewhere":
        reference = make_model().train()
        reference.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(batch):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        return loss.detach()

    steps = 0
    tokens = torch.randint(VOCABULARY, (512, LENGTH), generator=torch.Generator().manual_seed(0))
    for (batch,) in DataLoader(TensorDataset(tokens), batch_size=BATCH):
        if "exact" in sys.argv and steps == 2:
            report_peak(lambda: step(batch))
            return
        optimizer.zero_grad()
        report(step(batch))
        optimizer.step()
        steps += 1


main(sys.argv[1])
