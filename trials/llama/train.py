"""Train a Llama of about a billion parameters from random weights on the bytes of Python's own standard library.

Nothing to download: `python train.py` works on a CUDA device, and `python train.py --size tiny` on a CPU in seconds.
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {
    "tiny": {
        "num_hidden_layers": 2,
        "hidden_size": 64,
        "intermediate_size": 176,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 2048,
        "max_position_embeddings": 128,
    },
    # The sizes of TinyLlama, which was trained on windows of 2,048 tokens.
    "1b": {
        "num_hidden_layers": 22,
        "hidden_size": 2048,
        "intermediate_size": 5632,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
}


class Windows(Dataset):
    """Non-overlapping windows of the standard library's source, one token a byte."""

    def __init__(self, length, max_bytes=8_000_000):
        files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
        text = b"".join(path.read_bytes() for path in files)[:max_bytes]
        self.tokens = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.length = length

    def __len__(self):
        return len(self.tokens) // self.length

    def __getitem__(self, index):
        return self.tokens[index * self.length : (index + 1) * self.length].long()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="1b")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--length", type=int, help="tokens per sample; default: all positions of the model")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = LlamaConfig(**SIZES[options.size], use_cache=False)
    length = options.length or config.max_position_embeddings
    with device:
        model = LlamaForCausalLM(config)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    loader = DataLoader(
        Windows(length), options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda"
    )
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters on {device}")

    step, started = 0, time.perf_counter()
    while step < options.steps:
        for tokens in loader:
            tokens = tokens.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
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
