"""A Lightning script: the training step is a method of the module, the loop belongs to the framework."""

import warnings

import lightning as L
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from toy import ToyNet, report, toy_data

warnings.filterwarnings("ignore", module="lightning")


class Regression(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = ToyNet()

    def training_step(self, batch, batch_index):
        x, y = batch
        loss = F.mse_loss(self.net(x), y)
        report(loss)
        return loss

    def validation_step(self, batch, batch_index):
        x, y = batch
        return F.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


L.seed_everything(0)
trainer = L.Trainer(
    max_epochs=3,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    val_check_interval=16,
)
trainer.fit(
    Regression(),
    DataLoader(toy_data(), batch_size=8, shuffle=True),
    DataLoader(toy_data(num_samples=30, seed=5), batch_size=10),
)
