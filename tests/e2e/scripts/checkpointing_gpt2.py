"""A GPT-2 with random weights, and its gradient checkpointing on, off, or on where it does nothing."""

import sys

import torch
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

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
    tokens = torch.randint(VOCABULARY, (4096, LENGTH), generator=torch.Generator().manual_seed(0))
    for epoch in range(4):
        for (batch,) in DataLoader(TensorDataset(tokens), batch_size=BATCH):
            loss = model(input_ids=batch, labels=batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            report(loss)


main(sys.argv[1])
