"""Values that are known on a card that is not there, and those that are not."""

from __future__ import annotations

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


def test_files_are_loaded_onto_the_device() -> None:
    printed = run_on_absent_card(
        """
        import io
        file = io.BytesIO()
        torch.serialization.save({"weight": torch.full((2,), 4.0), "epoch": 3}, file)
        for where in ("cuda", torch.device("cuda:0"), {"cpu": "cuda:0"}, None, "cpu", lambda one, location: one):
            file.seek(0)
            loaded = torch.load(file, map_location=where)
            print(loaded["weight"].device, loaded["weight"].sum().item(), loaded["epoch"])
        print(torch.zeros(2, pin_memory=True).device)
        """
    )
    assert printed.splitlines() == ["cuda:0 8.0 3"] * 3 + ["cpu 8.0 3"] * 3 + ["cpu"]


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
