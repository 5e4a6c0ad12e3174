"""Transformers' Trainer on a GPT-2 with random weights and random tokens; nothing is downloaded."""

import tempfile

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

VOCABULARY, LENGTH = 512, 96


class RandomTokens(Dataset):
    def __len__(self):
        return 8192

    def __getitem__(self, index):
        tokens = torch.randint(VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def main():
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 96, "n_layer": 4, "n_head": 4}
    model = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output,
            per_device_train_batch_size=16,
            max_steps=100_000,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            logging_strategy="no",
            seed=0,
        )
        Trainer(model, arguments, train_dataset=RandomTokens()).train()


if __name__ == "__main__":
    main()
