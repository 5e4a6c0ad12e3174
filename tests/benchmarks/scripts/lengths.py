"""Train a transformer with random weights on batches that become longer; nothing is downloaded."""

import argparse

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", choices=("gpt2", "bert"))
parser.add_argument("lengths", type=int, nargs="+")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--limit", type=int, default=0, help="bytes that torch may reserve")
options = parser.parse_args()


def model():
    if options.model == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_embd=256, n_layer=6, n_head=4, vocab_size=8192))
    sizes = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 1024}
    return BertForMaskedLM(BertConfig(**sizes, vocab_size=8192, max_position_embeddings=1024))


texts = [torch.randint(8192, (length,)) for length in options.lengths for _ in range(options.batch_size)]
if options.limit:
    torch.cuda.set_per_process_memory_fraction(options.limit / torch.cuda.get_device_properties(0).total_memory)
trained = model().cuda().train()
optimizer = torch.optim.AdamW(trained.parameters())
for batch in DataLoader(texts, options.batch_size):
    ids = batch.cuda()
    trained(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("LENGTH", ids.shape[1], torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), flush=True)
