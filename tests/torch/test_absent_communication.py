"""NCCL of one process on a card that is not there."""

from __future__ import annotations

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
