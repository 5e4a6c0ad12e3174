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
        shared = set()
        names = "all_gather_into_tensor all_gather_single reduce_scatter_tensor reduce_scatter_single all_to_all_single"
        for name in names.split():
            if hasattr(dist, name):  # some came with torch 2.13
                whole.zero_()
                getattr(dist, name)(whole, length)
                shared.add(whole.item())
        print(shared)
        dist.scatter(whole, scatter_list=[length + 1])
        objects = [None]
        dist.all_gather_object(objects, {"loss": 1})
        dist.broadcast_object_list(objects, src=0)
        print(whole.item(), objects, recorder.asked == {})
        """
    )
    assert printed.splitlines() == ["True 5", "{5}", "6 [{'loss': 1}] True"]


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


def test_the_first_of_several_processes_is_alone_and_the_others_have_what_it_has() -> None:
    printed = run_on_absent_card(
        """
        import os, torch.distributed as dist
        dist.init_process_group("nccl", "env://", rank=int(os.environ["RANK"]))
        print(dist.get_rank(), dist.get_world_size(), os.environ["LOCAL_WORLD_SIZE"], dist.get_backend())
        few = dist.new_group([0, 1], backend="gloo")
        length, found = torch.tensor([5]).cuda(), [torch.zeros(1, dtype=torch.long).cuda() for _ in range(16)]
        dist.all_gather(found, length)
        whole, half = torch.zeros(16, dtype=torch.long).cuda(), torch.zeros(2, dtype=torch.long)
        dist.all_gather_into_tensor(whole, length)
        dist.all_gather_into_tensor(half, length.cpu(), group=few)
        print(sum(found).item(), whole.sum().item(), half.tolist(), dist.get_backend(few))
        dist.reduce_scatter_tensor(length, whole + 1)
        objects, mine = [None] * 16, [None]
        dist.all_gather_object(objects, [1])
        dist.scatter_object_list(mine, [{"a": 1}] * 16)
        dist.broadcast_object_list(mine)
        dist.gather_object("b", [None] * 16)
        dist.all_reduce(length)
        dist.barrier()
        print(length.item(), objects == [[1]] * 16, mine, recorder.asked == {})
        dist.destroy_process_group()
        """,
        number=16,
    )
    assert printed.splitlines() == ["0 16 8 nccl", "80 80 [5, 5] gloo", "6 True [{'a': 1}] True"]


SHARDED = """
        import torch.distributed as dist
        from torch import nn
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("nccl")
"""


def test_a_process_has_its_part_of_sharded_parameters_and_of_the_optimizer_s_state() -> None:
    printed = run_on_absent_card(
        SHARDED
        + """
        from autotune.worker.plans.layers import class_name_of, own_class
        net = nn.Sequential(nn.Linear(1024, 1024, bias=False), nn.Linear(1024, 1024, bias=False)).cuda()
        for each in (*net, net):
            fully_shard(each)
        print(class_name_of(net), own_class(net[0]) is nn.Linear)
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(2):
            net(torch.ones(4, 1024, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        parts = [recorder.number_of(one) for state in optimizer.state.values() for one in state.values() if one.dim()]
        trace = recorder.trace()
        print({trace.storage_bytes[number] for number in parts}, len(parts))
        kept = {number for kind, number in zip(trace.kinds, trace.numbers) if kind == "a"}
        kept -= {number for kind, number in zip(trace.kinds, trace.numbers) if kind == "f"}
        print(sum(trace.storage_bytes[number] for number in kept if trace.storage_bytes[number] >= 4 * 1024))
        """,
        number=8,
    )
    part = 4 * 1024 * 1024 // 8
    # Of two parameters: each, its two moments, and none of what was gathered.
    assert printed.splitlines() == ["Sequential True", f"{{{part}}} 4", str(2 * 3 * part)]


def test_sharded_parameters_may_begin_without_memory_or_on_the_cpu() -> None:
    printed = run_on_absent_card(
        SHARDED
        + """
        from torch.distributed.fsdp import CPUOffloadPolicy
        with torch.device("meta"):
            net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
        fully_shard(net)
        net.to_empty(device="cuda")
        for one in net.parameters():
            nn.init.normal_(one)
        print(net[0].weight.to_local().device, net(torch.ones(2, 16, device="cuda")).shape)
        off = nn.Linear(16, 16)
        fully_shard(off, offload_policy=CPUOffloadPolicy())
        off(torch.ones(2, 16, device="cuda")).sum().backward()
        print(off.weight.device, off.weight.grad.device)
        moved = nn.Linear(16, 16)
        moved.weight.data = moved.weight.to("cuda")
        print(moved.weight.device, moved.weight.is_meta)
        """,
        number=8,
    )
    assert printed.splitlines() == ["cuda:0 torch.Size([2, 16])", "cpu cpu", "cuda:0 False"]


@pytest.mark.parametrize(("number", "seen"), [(1, 1), (2, 2), (16, 8)])
def test_a_process_sees_the_gpus_of_its_machine(number: int, seen: int) -> None:
    printed = run_on_absent_card(
        "print(torch.cuda.device_count(), torch.accelerator.device_count(), torch.cuda.current_device())",
        number=number,
    )
    assert printed.split() == [str(seen), str(seen), "0"]


def test_one_process_on_several_gpus_is_refused() -> None:
    printed = run_on_absent_card(
        """
        layers = torch.nn.Linear(4, 4).cuda()
        torch.nn.DataParallel(layers, device_ids=[0])
        try:
            torch.nn.DataParallel(layers)
        except Exception as error:
            print(error)
        """,
        number=2,
    )
    assert printed.strip() == "DataParallel trains one process on several GPUs, and a process for each is followed"


def test_shards_are_drawn_within_bounds_and_the_time_limit_of_communication_is_set() -> None:
    printed = run_on_absent_card(
        """
        import datetime, torch.distributed as dist
        from torch.distributed.fsdp import fully_shard
        dist.init_process_group("nccl")
        with torch.device("meta"):
            layer = torch.nn.Linear(16, 16)
        fully_shard(layer)
        layer.to_empty(device="cuda")
        torch.nn.init.trunc_normal_(layer.weight, std=0.02)
        whole = layer.weight.float()
        torch.nn.init.trunc_normal_(whole, std=0.02)
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=9), None)
        print(layer.weight.to_local().shape)
        """,
        number=2,
    )
    assert printed.strip() == "torch.Size([8, 16])"
