"""Gradients that ONNX Runtime computes where it recomputes dropout, beside PyTorch's with the same masks.

Runs in the environment of engine ``ortmodule``. Behind each dropout stands a product with the identity, so that
outputs show the masks of the forward, and the gradient of that identity the activations as they were recomputed.
Prints one JSON object: by plan, the largest difference of any parameter's gradient over the steps as a share of its
largest element, and whether the masks were those of the run without plans.
"""

import json
import os
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from ortmodule_compat import import_ortmodule
from torch import nn

ROWS, WIDTH, LAYERS, STEPS, SHARE = 32, 32, 3, 4, 0.5


class Net(nn.Module):
    """``masks`` are drawn by its own dropout, or given: one for each layer, zeros and ones over what is kept."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.identity = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS))
        for linear in self.identity:
            nn.init.eye_(linear.weight)
        self.dropout = nn.Dropout(SHARE)

    def forward(self, x, masks=None):
        outputs = []
        for number, (inner, identity) in enumerate(zip(self.inner, self.identity, strict=True)):
            x = F.gelu(inner(x))
            x = identity(self.dropout(x) if masks is None else x * masks[number])
            outputs.append(x)
        return torch.stack(outputs)


def main():
    ortmodule = import_ortmodule()
    os.environ["ORTMODULE_FALLBACK_POLICY"] = "FALLBACK_DISABLE"
    found, without = {}, None
    for plan in (None, "Gelu+Dropout+:1:-1"):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ORTMODULE_MEMORY_OPT_CONFIG"] = str(Path(folder, "mem_opt.json"))
            Path(folder, "mem_opt.json").write_text(json.dumps([plan] if plan else []))
            outputs, difference, is_on = steps_of(ortmodule, Path(folder, "graph.onnx"))
        without = outputs if without is None else without
        same = all(torch.equal(one != 0, other != 0) for one, other in zip(outputs, without, strict=True))
        found[plan or "no plans"] = {
            "gradient_difference": difference,
            "masks_of_the_run_without": same,
            "on": is_on,
        }
    print(json.dumps(found))


def steps_of(ortmodule, path):
    """The outputs of each step, the largest difference of gradients, and whether a Dropout ran again."""
    torch.manual_seed(0)
    net = Net()
    wrapped = ortmodule.ORTModule(net, ortmodule.DebugOptions(log_level=ortmodule.LogLevel.ERROR))
    weights = torch.randn(LAYERS, ROWS, WIDTH)
    all_outputs, largest = [], 0.0
    manager = wrapped._torch_module._execution_manager(True)
    configure = manager._get_session_config

    def keep_graph():
        config = configure()
        config[0].optimized_model_filepath = str(path)
        return config

    manager._get_session_config = keep_graph
    for _ in range(STEPS):
        x = torch.randn(ROWS, WIDTH)
        net.zero_grad()
        outputs = wrapped(x)
        (outputs * weights).sum().backward()
        all_outputs.append(outputs.detach())
        reference = Net()
        reference.load_state_dict(net.state_dict())
        (reference(x, (outputs.detach() != 0) / (1 - SHARE)) * weights).sum().backward()
        for ours, theirs in zip(net.parameters(), reference.parameters(), strict=True):
            difference = (ours.grad - theirs.grad).abs().max() / theirs.grad.abs().max()
            largest = max(largest, difference.item())
    import onnx

    nodes = onnx.load(str(path), load_external_data=False).graph.node
    return all_outputs, largest, any("Dropout" in node.op_type and "_recompute" in node.name for node in nodes)


if __name__ == "__main__":
    main()
