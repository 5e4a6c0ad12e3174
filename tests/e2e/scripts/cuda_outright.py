"""A script for a GPU: it says `cuda` outright, in the ways that scripts do, and looks at values and at the card."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--sized-by-data", action="store_true")
parser.add_argument("--sized-by-model", action="store_true")
parser.add_argument("--keeps-batch-size", action="store_true")
parser.add_argument("--two-loaders", action="store_true")
parser.add_argument("--two-optimizers", action="store_true")
parser.add_argument("--in-evaluation-mode", action="store_true")
options = parser.parse_args()

assert torch.cuda.is_available(), "this script needs a GPU"
torch.cuda.set_device(0)
torch.cuda.manual_seed_all(0)
print(torch.cuda.get_device_name(), torch.cuda.get_device_capability(), torch.cuda.mem_get_info()[1])
device = torch.device("cuda", torch.cuda.current_device())
model = nn.Sequential(nn.Linear(256, 4096), nn.GELU(), nn.Dropout(0.1), nn.Linear(4096, 10)).cuda()
model.train(not options.in_evaluation_mode)
scale = torch.full((256 if options.keeps_batch_size else 1, 1), 2.0, device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), fused=False)
other = torch.optim.Adam([nn.Parameter(torch.ones(4096, device=device))])
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
scaler = torch.amp.GradScaler("cuda")
data = TensorDataset(torch.randn(8192, 256), torch.randint(0, 10, (8192,)))
loaders = [DataLoader(data, 256, True, num_workers=2, pin_memory=True)]
if options.two_loaders:
    loaders += [DataLoader(data, 64)]
for step, batches in enumerate(zip(*loaders)):
    x, y = map(torch.cat, zip(*batches)) if options.two_loaders else batches[0]
    x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
    if options.sized_by_data:
        x, y = x[y > 4], y[y > 4]
    if options.sized_by_model:
        sure = model[0](x).amax(1) > 1
        x, y = x[sure], y[sure]
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x) * scale, y)
    if not torch.isfinite(loss):
        raise SystemExit("the loss is not finite")
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if options.two_optimizers:
        other.param_groups[0]["params"][0].pow(2).sum().backward()
        other.step()
    schedule.step()
    torch.cuda.synchronize()
    print(f"step {step}: {loss.item():.3f}, {norm:.2f}, {torch.cuda.max_memory_allocated() >> 20} MiB", flush=True)
