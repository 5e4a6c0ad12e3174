"""A Hugging Face Trainer on a tiny GPT-2 with random weights; nothing is downloaded."""

import tempfile

import torch
from torch.utils.data import Dataset, Subset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from toy import report

VOCABULARY = 100


class RandomTokens(Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(VOCABULARY, (16,), generator=generator)
        return {"input_ids": tokens, "labels": tokens}


class ReportingTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        result = super().compute_loss(model, inputs, return_outputs=return_outputs, **kwargs)
        if model.training:
            report(result[0] if return_outputs else result)
        return result


def main():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
        )
    )
    with tempfile.TemporaryDirectory() as output:
        arguments = TrainingArguments(
            output,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=16,
            gradient_accumulation_steps=2,
            max_steps=160,
            eval_strategy="steps",
            eval_steps=20,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
            seed=0,
        )
        data = RandomTokens()
        ReportingTrainer(model, arguments, train_dataset=data, eval_dataset=Subset(data, range(20))).train()


if __name__ == "__main__":
    main()
