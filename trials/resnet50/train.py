"""Train a ResNet-50 from random weights on generated images: stripes, whose width and direction are to be told.

Nothing to download: `python train.py` works on a CUDA device, and `python train.py --size tiny` on a CPU in seconds.
"""

import argparse
import os
import time

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import ResNetConfig, ResNetForImageClassification

SIZES = {
    "tiny": {"embedding_size": 16, "hidden_sizes": [16, 32, 64, 128], "depths": [2, 2, 2, 2]},
    "50": {},  # what ResNetConfig has by itself: 3, 4, 6 and 3 bottlenecks
}
IMAGE_SIZES = {"tiny": 64, "50": 224}
WIDTHS = (2, 3, 5, 8, 13)


class Stripes(Dataset):
    """Images of 8 bits a channel, (3, size, size), with noise; the label says width and direction of the stripes."""

    num_labels = 2 * len(WIDTHS)

    def __init__(self, size, num_images=20_000):
        self.size, self.num_images = size, num_images
        self.noise = torch.randint(0, 64, (3, 2 * size, 2 * size), dtype=torch.uint8)

    def __len__(self):
        return self.num_images

    def __getitem__(self, index):
        label = index % self.num_labels
        y, x = torch.randint(0, self.size, (2,)).tolist()
        image = self.noise[:, y : y + self.size, x : x + self.size].clone()
        stripes = (torch.arange(self.size) + x) // WIDTHS[label // 2] % 2 == 1
        (image if label % 2 else image.transpose(1, 2))[:, stripes] += 128
        return image, label


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="50")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=min(4, os.cpu_count() or 1), help="processes that make images")
    parser.add_argument("--log-every", type=int, default=10, help="steps")
    options = parser.parse_args()

    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = ResNetConfig(**SIZES[options.size], num_labels=Stripes.num_labels)
    with device:
        model = ResNetForImageClassification(config).to(memory_format=torch.channels_last)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, weight_decay=0.05)
    loader = DataLoader(
        Stripes(IMAGE_SIZES[options.size]),
        options.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        pin_memory=device.type == "cuda",
    )
    print(f"{sum(weight.numel() for weight in model.parameters()):,} parameters on {device}")

    step, started = 0, time.perf_counter()
    while step < options.steps:
        for images, labels in loader:
            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
            labels = labels.to(device, non_blocking=True)
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(pixel_values=images / 127.5 - 1, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % options.log_every == 0 or step == options.steps:
                value = loss.item()  # waits for the device, so that the clock below tells the truth
                rate = step * len(images) / (time.perf_counter() - started)
                print(f"step {step:5}  loss {value:.4f}  {rate:,.0f} images/s", flush=True)
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
