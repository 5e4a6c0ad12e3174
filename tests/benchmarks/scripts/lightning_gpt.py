"""Lightning's Trainer on a small Transformer with dropout: the loop belongs to the framework."""

import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore", module="lightning")
VOCABULARY, LENGTH, WIDTH, HEADS = 256, 64, 96, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + F.dropout(self.out(mixed), 0.1, self.training)
        return x + F.dropout(self.down(F.gelu(self.up(self.mlp_norm(x)))), 0.1, self.training)


class LanguageModel(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, codes):
        x = self.embed(codes)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def training_step(self, batch, batch_index):
        (codes,) = batch
        return F.cross_entropy(self(codes[:, :-1]).flatten(0, 1), codes[:, 1:].flatten())

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main():
    L.seed_everything(0)
    trainer = L.Trainer(
        max_epochs=1000,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    codes = torch.randint(VOCABULARY, (4096, LENGTH + 1), generator=torch.Generator().manual_seed(1))
    trainer.fit(LanguageModel(), DataLoader(TensorDataset(codes), batch_size=16, shuffle=True, drop_last=True))


if __name__ == "__main__":
    main()
