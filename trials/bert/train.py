"""Train a small BERT as a masked language model on the source text of Python's own standard library.

Real text, always there, nothing to download: `python train.py` works on a CPU and on a CUDA device alike.
"""

import argparse
import math
import re
import sysconfig
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PAD, UNKNOWN, BEGIN, MASK = range(4)
# What cross_entropy leaves out: the words that are not to be guessed.
NO_LABEL = -100


@dataclass
class Config:
    """The names and the proportions are BERT's, the sizes those of a toy."""

    vocab_size: int = 2048
    hidden_size: int = 128
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    intermediate_size: int = 512
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 128


def read_paragraphs(max_chars):
    """The standard library's modules in alphabetical order, split at empty lines, up to `max_chars` characters."""
    folder = Path(sysconfig.get_path("stdlib"))
    parts, total = [], 0
    for path in sorted(folder.glob("*.py")):
        parts.append(path.read_text(encoding="ascii", errors="ignore"))
        total += len(parts[-1])
        if total >= max_chars:
            break
    return re.split(r"\n\s*\n", "\n\n".join(parts)[:max_chars])


class Paragraphs(Dataset):
    """Paragraphs as words, cut and padded to one length; every seventh word or so is to be guessed."""

    def __init__(self, paragraphs, vocabulary, length):
        self.samples = []
        generator = torch.Generator().manual_seed(1)
        for words in paragraphs:
            codes = [BEGIN, *(vocabulary.get(word, UNKNOWN) for word in words)][:length]
            self.samples.append(masked(torch.tensor(codes + [PAD] * (length - len(codes))), vocabulary, generator))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def masked(codes, vocabulary, generator):
    """Words with some of them hidden, and what those were: as BERT has it, 80 % masked, 10 % replaced, 10 % kept."""
    chosen = (torch.rand(len(codes), generator=generator) < 0.15) & (codes > BEGIN)
    chosen[1] = True  # a sample without anything to guess has no loss
    how = torch.rand(len(codes), generator=generator)
    other = torch.randint(MASK + 1, len(vocabulary) + MASK + 1, codes.shape, generator=generator)
    hidden = torch.where(how < 0.8, torch.full_like(codes, MASK), torch.where(how < 0.9, other, codes))
    return torch.where(chosen, hidden, codes), torch.where(chosen, codes, torch.full_like(codes, NO_LABEL))


class SelfAttention(nn.Module):
    """Self-attention, written out. Its weights, (batch, heads, length, length), fill most of the memory."""

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.attention_probs_dropout_prob)

    def forward(self, x, unseen):
        batch, length, width = x.shape

        def of_heads(y):
            return y.view(batch, length, self.heads, width // self.heads).transpose(1, 2)

        q, k, v = of_heads(self.query(x)), of_heads(self.key(x)), of_heads(self.value(x))
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads) + unseen
        return (self.dropout(F.softmax(scores, dim=-1)) @ v).transpose(1, 2).reshape(batch, length, width)


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_output = nn.Linear(config.hidden_size, config.hidden_size)
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x, unseen):
        x = self.attention_norm(x + self.dropout(self.attention_output(self.attention(x, unseen))))
        return self.output_norm(x + self.dropout(self.output(F.gelu(self.intermediate(x)))))


class BertForMaskedLM(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.words = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=PAD)
        self.positions = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.transform = nn.Linear(config.hidden_size, config.hidden_size)
        self.transform_norm = nn.LayerNorm(config.hidden_size)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, input_ids, labels):
        """Words and labels, both of shape (batch, length), to the loss."""
        # Added to the scores: padding is not looked at. (batch, 1, 1, length)
        unseen = (input_ids == PAD)[:, None, None, :].to(self.norm.weight.dtype) * -10000.0
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.dropout(self.norm(self.words(input_ids) + self.positions(positions)))
        for layer in self.layers:
            x = layer(x, unseen)
        logits = self.decoder(self.transform_norm(F.gelu(self.transform(x))))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=NO_LABEL)


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--length", type=int, default=Config.max_position_embeddings, help="words per sample")
    parser.add_argument("--layers", type=int, default=Config.num_hidden_layers)
    parser.add_argument("--width", type=int, default=Config.hidden_size)
    parser.add_argument("--vocabulary", type=int, default=Config.vocab_size)
    parser.add_argument("--dropout", type=float, default=Config.hidden_dropout_prob)
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--max-chars", type=int, default=2_000_000, help="how much of the standard library to read")
    parser.add_argument("--log-every", type=int, default=20, help="steps")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    return parser.parse_args()


def main():
    options = parse_options()
    torch.manual_seed(0)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device = torch.device(name)

    paragraphs = [re.findall(r"\w+|[^\w\s]", text) for text in read_paragraphs(options.max_chars)]
    paragraphs = [words for words in paragraphs if len(words) >= 8]
    counted = Counter(word for words in paragraphs for word in words)
    common = counted.most_common(options.vocabulary - MASK - 1)
    vocabulary = {word: code for code, (word, _) in enumerate(common, MASK + 1)}
    training = Paragraphs(paragraphs, vocabulary, options.length)

    config = Config(
        vocab_size=options.vocabulary,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        intermediate_size=4 * options.width,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        max_position_embeddings=options.length,
    )
    model = BertForMaskedLM(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    loader = DataLoader(training, options.batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda")
    if len(loader) == 0:
        raise SystemExit(f"--batch-size {options.batch_size} is more than the {len(training)} samples there are")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{len(training):,} paragraphs, {len(vocabulary):,} words; {num_parameters:,} parameters on {device}")

    model.train()
    step, started = 0, time.perf_counter()
    while step < options.steps:
        for input_ids, labels in loader:
            loss = model(input_ids.to(device, non_blocking=True), labels.to(device, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % options.log_every == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * input_ids.numel() / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.9g}  {rate:,.0f} words/s", flush=True)
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
