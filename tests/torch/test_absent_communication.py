"""NCCL of one process on a card that is not there."""

from __future__ import annotations

import pytest

from tests.torch.test_absent_recorder import run_on_absent_card

GROUP = """
        import torch.distributed as dist, tempfile
        store = dist.FileStore(tempfile.mktemp(), 1)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1)
"""


def test_a_process_communicates_with_itself_over_nccl() -> None:
    printed = run_on_absent_card(
        GROUP
        + """
        total = torch.ones(1, device="cuda")
        dist.all_reduce(total)
        dist.barrier()
        group = dist.new_group([0], backend="nccl")
        print(dist.get_backend(), dist.get_backend(group), dist.get_world_size(), dist.is_nccl_available())
        """
    )
    assert printed.split() == ["nccl", "nccl", "1", "True"]


def test_a_group_that_no_backend_was_named_for_is_nccl_s_too() -> None:
    printed = run_on_absent_card(
        """
        import os, torch.distributed as dist
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
        mesh = dist.device_mesh.init_device_mesh("cuda", (1,))
        total = torch.ones(1)
        dist.all_reduce(total)
        print(dist.get_backend(), mesh.size(), total.item())
        """
    )
    assert printed.split() == ["cpu:gloo,cuda:nccl", "1", "1.0"]


def test_what_is_gathered_and_scattered_is_what_the_process_gave() -> None:
    printed = run_on_absent_card(
        GROUP
        + """
        length = torch.tensor([5]).cuda()
        found = [torch.zeros_like(length)]
        work = dist.all_gather(found, length, async_op=True)
        print(work.wait(), found[0].item())
        whole = torch.zeros_like(length)
        for share in (dist.all_gather_into_tensor, dist.reduce_scatter_tensor, dist.all_to_all_single):
            whole.zero_()
            share(whole, length)
            print(whole.item())
        dist.scatter(whole, scatter_list=[length + 1])
        objects = [None]
        dist.all_gather_object(objects, {"loss": 1})
        dist.broadcast_object_list(objects, src=0)
        print(whole.item(), objects, recorder.asked == {})
        """
    )
    assert printed.splitlines() == ["True 5", "5", "5", "5", "6 [{'loss': 1}] True"]


@pytest.mark.parametrize("option", ["find_unused_parameters", "static_graph", "gradient_as_bucket_view"])
def test_distributed_data_parallel_takes_its_options(option: str) -> None:
    printed = run_on_absent_card(
        GROUP
        + f"""
        layers = torch.nn.ModuleList([torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]).cuda()
        layers.forward = lambda x: layers[0](x)
        if {option!r} != "find_unused_parameters":
            layers.forward = lambda x: layers[1](layers[0](x))
        model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[0], {option}=True)
        model.register_comm_hook(state=None, hook=lambda state, bucket: None)
        for _ in range(3):
            model(torch.ones(2, 4, device="cuda")).sum().backward()
        print("trained")
        """
    )
    assert printed.strip() == "trained"


def test_distributed_data_parallel_keeps_buckets_as_large_as_the_gradients() -> None:
    printed = run_on_absent_card(
        GROUP
        + """
        layer = torch.nn.Linear(1000, 1000, bias=False).cuda()
        before = len(recorder.trace().storage_bytes)
        model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[0])
        made = recorder.trace().storage_bytes[before:]
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(2):
            model(torch.ones(2, 1000, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(4_000_000 in made, layer.weight.grad)
        """
    )
    assert printed.split() == ["True", "None"]
