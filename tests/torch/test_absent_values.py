"""Values that are known on a card that is not there, and those that are not."""

from __future__ import annotations

from pathlib import Path

from tests.torch.test_absent_recorder import run_on_absent_card


def test_values_that_follow_from_data_alone_are_known() -> None:
    printed = run_on_absent_card(
        """
        lengths = torch.tensor([3, 5, 2]).cuda()
        mask = torch.arange(8, device="cuda")[None] < lengths[:, None]
        print(lengths.max().item(), lengths.tolist(), f"{lengths[0]}", mask.sum().item(), lengths.cpu().numpy())
        print(torch.equal(lengths, lengths), torch.equal(lengths, lengths + 1), dict(recorder.asked))
        """
    )
    assert printed.splitlines() == ["5 [3, 5, 2] 3 10 [3 5 2]", "True False {}"]


def test_values_that_a_parameter_or_a_random_number_went_into_are_not() -> None:
    printed = run_on_absent_card(
        """
        layer = torch.nn.Linear(4, 1).cuda()
        loss = layer(torch.full((2, 4), 7.0).cuda()).sum()
        drawn = torch.randint(5, 9, (3,), device="cuda")
        kept = torch.full((4,), 3.0).cuda()
        first = kept[:1]
        print(first.item())
        kept[2:] = loss.detach()
        print(loss.item(), drawn.max().item(), first.item(), len(recorder.asked), len(recorder.asked_integers))
        """
    )
    assert printed.splitlines() == ["3.0", "1.0 1 1.0 1 1"]


def test_sizes_that_follow_from_data_are_those_of_the_gpu() -> None:
    printed = run_on_absent_card(
        """
        labels = torch.tensor([[1, -100, 2], [-100, -100, 3]]).cuda()
        hidden = torch.nn.Embedding(4, 5).cuda()(labels.clamp(min=0))
        chosen = hidden[labels != -100]
        chosen.sum().backward()
        print(tuple(chosen.shape), tuple(labels[labels != -100].shape), tuple(labels.unique().shape))
        print(tuple(torch.masked_select(hidden[..., 0], labels > 0).shape), tuple((labels > 1).nonzero().shape))
        """
    )
    assert printed.splitlines() == ["(3, 5) (3,) (4,)", "(3,) (2, 2)"]


def test_large_tensors_are_not_computed_on() -> None:
    printed = run_on_absent_card(
        """
        image = torch.full((1 << 11, 1 << 10), 2.0).cuda()
        print(image[0, 0].item())
        """
    )
    assert printed.strip() == "1.0"


def test_parameters_have_no_values_even_if_their_data_have() -> None:
    printed = run_on_absent_card(
        """
        weight = torch.nn.Parameter(torch.full((3,), 5.0, device="cuda"))
        print((weight * torch.ones(3).cuda()).sum().item())
        """
    )
    assert printed.strip() == "1.0"


def test_what_an_operator_only_reads_keeps_its_values() -> None:
    printed = run_on_absent_card(
        """
        loss = torch.nn.Linear(4, 1).cuda()(torch.ones(6, 4).cuda()).detach()
        data, places = torch.arange(8.0), torch.tensor([0, 4]).cuda()
        mask = torch.tensor([1, 0, 1, 1, 0, 1]).bool().cuda()
        loss.masked_fill_(mask[:, None], 0)
        loss[places] = loss[:2] + 1
        torch.nn.Parameter(torch.zeros(2)).data.copy_(data[:2])
        print(tuple(loss[mask].shape), places.max().item(), data[6:].cuda().sum().item(), dict(recorder.asked))
        """
    )
    assert printed.strip() == "(4, 1) 4 13.0 {}"


def test_values_follow_data_that_are_set_copies_and_lists_of_tensors() -> None:
    printed = run_on_absent_card(
        """
        import copy
        loss = torch.nn.Linear(4, 1).cuda()(torch.ones(6, 4).cuda()).detach().sum()
        counter, other = torch.zeros(()).cuda(), torch.zeros(3).cuda()
        other.data = torch.full((3,), 7.0).cuda()
        torch._foreach_add_([counter], 2)
        print(other.sum().item(), counter.item(), copy.deepcopy(counter).item())
        counter += loss
        print(copy.deepcopy(counter).item())
        """
    )
    assert printed.splitlines() == ["21.0 2.0 2.0", "1.0"]


def test_a_gradient_scaler_finds_nothing_infinite() -> None:
    printed = run_on_absent_card(
        """
        layer, scaler = torch.nn.Linear(4, 1).cuda(), torch.amp.GradScaler("cuda")
        optimizer = torch.optim.SGD(layer.parameters())
        for _ in range(2):
            scaler.scale(layer(torch.ones(2, 4).cuda()).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        print(scaler.get_scale())
        """
    )
    assert printed.strip() == "65536.0"


def test_inference_mode_is_followed() -> None:
    printed = run_on_absent_card(
        """
        layer, batch = torch.nn.Linear(4, 1).cuda(), torch.ones(2, 4)

        @torch.inference_mode()
        def evaluate():
            return layer(batch.to("cuda")).sum().item()

        with torch.inference_mode():
            print(evaluate(), batch.cuda().sum().item(), torch.is_grad_enabled())
        """
    )
    assert printed.strip() == "1.0 8.0 False"


def test_files_are_loaded_onto_the_device() -> None:
    printed = run_on_absent_card(
        """
        import io
        file, weight = io.BytesIO(), torch.full((2,), 4.0)
        torch.serialization.save({"weight": weight, "tied": weight, "epoch": 3}, file)
        places = ("cuda", torch.device("cuda:0"), {"cpu": "cuda:0"}, lambda one, location: one.cuda())
        for where in (*places, None, "cpu", lambda one, location: one, "meta"):
            file.seek(0)
            loaded = torch.load(f=file, map_location=where)
            print(loaded["weight"].device, loaded["epoch"], end=" ")
            print(loaded["weight"].untyped_storage()._cdata == loaded["tied"].untyped_storage()._cdata)
        print(torch.zeros(2, pin_memory=True).device)
        """
    )
    on_gpu, on_cpu, on_meta = (f"{device} 3 True" for device in ("cuda:0", "cpu", "meta"))
    assert printed.splitlines() == [on_gpu] * 4 + [on_cpu] * 3 + [on_meta, "cpu"]


def test_what_has_values_can_be_saved_and_pickled(tmp_path: Path) -> None:
    """Guards data sets that keep what they have prepared, and read it again."""
    printed = run_on_absent_card(
        f"""
        import io, pickle
        file = {str(tmp_path / "data.pt")!r}
        torch.save({{"x": torch.arange(3)}}, file)
        print(torch.load(file)["x"].tolist(), pickle.loads(pickle.dumps(torch.full((2,), 4.0))).tolist())
        memory, layer = io.BytesIO(), torch.nn.Linear(4, 1).cuda()
        torch.save(torch.arange(4), memory)
        print(torch.load(io.BytesIO(memory.getvalue())).tolist())
        for each in (layer.state_dict(), layer, [torch.ones(2), layer.weight]):
            torch.save(each, file)
            print(open(file, "rb").read())
        """
    )
    assert printed.splitlines() == ["[0, 1, 2] [4.0, 4.0]", "[0, 1, 2, 3]", *["b''"] * 3]


def test_values_that_were_lost_do_not_take_those_of_later_tensors_with_them() -> None:
    """Guards against the address of a storage: the next one of its size often gets the same."""
    printed = run_on_absent_card(
        """
        loss = torch.nn.Linear(4, 1).cuda()(torch.ones(2, 4).cuda()).sum().detach()
        found = []
        for step in range(50):
            total = torch.zeros(64).cuda()
            total += loss
            del total
            found.append(torch.full((64,), step).cuda().max().item())
        print(found == list(range(50)))
        """
    )
    assert printed.strip() == "True"
