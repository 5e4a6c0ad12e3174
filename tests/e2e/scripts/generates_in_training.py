"""A Hugging Face model that generates text after every training step, without leaving training mode."""

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from toy import report

VOCABULARY = 100

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(vocab_size=VOCABULARY, n_positions=32, n_embd=16, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for _ in range(60):
    tokens = torch.randint(VOCABULARY, (4, 12))
    loss = model(input_ids=tokens, labels=tokens).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    report(loss)
    prompt = tokens[:, :4]
    mask = torch.ones_like(prompt)
    model.generate(prompt, attention_mask=mask, max_new_tokens=4, do_sample=True, pad_token_id=0)
