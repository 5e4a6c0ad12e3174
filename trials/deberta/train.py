"""Train a DeBERTa v2 from random weights to tell from a few lines of Python's standard library whose lines they are.

Nothing to download: `python train.py` works on a CUDA device, and `python train.py --size tiny` on a CPU in seconds.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

SIZES = {
    "tiny": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 2048,
    },
    # deberta-v2-xlarge with 0.9 and deberta-v2-xxlarge with 1.5 billion parameters
    "xlarge": {
        "num_hidden_layers": 24,
        "hidden_size": 1536,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "vocab_size": 128100,
    },
    "xxlarge": {
        "num_hidden_layers": 48,
        "hidden_size": 1536,
        "num_attention_heads": 24,
        "intermediate_size": 6144,
        "vocab_size": 128100,
    },
}
# What the published models of this family have in common, and the configuration's defaults have not.
SHARED = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_buckets": 256,
    "share_att_key": True,
    "norm_rel_ebd": "layer_norm",
    "position_biased_input": False,
    "type_vocab_size": 0,
    # Without it the model looks at each step which samples have a label, and the device waits.
    "problem_type": "single_label_classification",
}
PAD, NUM_SPECIAL = 0, 5  # a byte's token is its value after the special ones


class Lines(Dataset):
    """Some bytes of a module, padded to one length, and the module's number."""

    def __init__(self, length, num_modules=64):
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:num_modules]
        self.num_labels, self.length, self.samples = len(files), length, []
        for number, path in enumerate(files):
            text = torch.tensor(list(path.read_bytes()), dtype=torch.uint8)
            self.samples += [(window, number) for window in text.split(length)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        window, number = self.samples[index]
        padding = (0, self.length - len(window))
        tokens = torch.nn.functional.pad(window.long() + NUM_SPECIAL, padding, value=PAD)
        mask = torch.nn.functional.pad(torch.ones(len(window), dtype=torch.long), padding)
        return {"input_ids": tokens, "attention_mask": mask, "labels": torch.tensor(number)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="xxlarge")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=256, help="tokens per sample")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dataset = Lines(options.length)
    config = DebertaV2Config(**SIZES[options.size], **SHARED, num_labels=dataset.num_labels)
    with device:
        model = DebertaV2ForSequenceClassification(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    loader = DataLoader(dataset, options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters on {device}")

    step, started = 0, time.perf_counter()
    while step < options.steps:
        for batch in loader:
            batch = {name: tensor.to(device, non_blocking=True) for name, tensor in batch.items()}
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % options.log_every == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * options.batch_size / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.4f}  {rate:,.1f} samples/s", flush=True)
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
