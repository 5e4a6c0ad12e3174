"""Train BERT-large from random weights as a masked language model on the bytes of Python's own standard library.

Nothing to download: `python train.py` works on a CUDA device, and `python train.py --size tiny` on a CPU in seconds.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertForMaskedLM

SIZES = {
    "tiny": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "max_position_embeddings": 128,
        "vocab_size": 2048,
    },
    "large": {
        "num_hidden_layers": 24,
        "hidden_size": 1024,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}
MASK, NUM_SPECIAL = 4, 5  # a byte's token is its value after the special ones
NO_LABEL = -100  # what the loss leaves out: the bytes that are not to be guessed


class MaskedWindows(Dataset):
    """Windows of the standard library's source, one token a byte, of which 15 % are hidden and to be guessed."""

    def __init__(self, length, max_bytes=8_000_000):
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(path.read_bytes() for path in files)[:max_bytes]
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, index):
        window = self.tokens[index * self.length : (index + 1) * self.length].long() + NUM_SPECIAL
        hidden = torch.rand(self.length) < 0.15
        return window.masked_fill(hidden, MASK), window.masked_fill(~hidden, NO_LABEL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="large")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, help="tokens per sample; default: all positions of the model")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = BertConfig(**SIZES[options.size])
    length = options.length or config.max_position_embeddings
    with device:
        model = BertForMaskedLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.01)
    loader = DataLoader(
        MaskedWindows(length), options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda"
    )
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters on {device}")

    step, started = 0, time.perf_counter()
    while step < options.steps:
        for tokens, labels in loader:
            tokens, labels = tokens.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(input_ids=tokens, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % options.log_every == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * tokens.numel() / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.4f}  {rate:,.0f} tokens/s", flush=True)
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
