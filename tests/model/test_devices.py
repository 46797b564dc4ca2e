"""Which layer goes to which device, and what is refused."""

import pytest
import torch

import vesalius as ves
from tests.devices import LogicalDevices
from tests.models import random_model, small_config
from vesalius.model.devices import assign_layers, fitting_devices, place, replica_devices, spread, weight_bytes

GPUS = [torch.device("cuda", i) for i in range(3)]


def test_layers_follow_the_room_of_the_devices() -> None:
    assert assign_layers([10] * 4, [1, 1]) == [0, 0, 1, 1]
    assert assign_layers([10] * 4, [3, 1]) == [0, 0, 0, 1]
    assert assign_layers([10] * 6, [1, 1, 1]) == [0, 0, 1, 1, 2, 2]
    assert assign_layers([10] * 4, [0, 5]) == [1, 1, 1, 1], "a device without room holds nothing"
    assert assign_layers([10] * 4, [1, 1], first=20) == [0, 1, 1, 1], "the embedding weighs as much as two layers"
    assert assign_layers([10] * 4, [1, 1], last=20) == [0, 0, 0, 1]
    assert assign_layers([10], [1, 1]) == [0]
    with pytest.raises(ves.BadInput, match="none of the devices has memory free"):
        assign_layers([10] * 4, [0, 0])


def test_auto_spreads_only_what_does_not_fit_one_device() -> None:
    room = dict(zip(GPUS, (80, 100, 60), strict=True))
    assert fitting_devices(60, room) == (GPUS[0],), "60 of 80 leaves a quarter for activations"
    assert fitting_devices(70, room) == (GPUS[1],)
    assert fitting_devices(80, room) == tuple(GPUS)
    assert fitting_devices(10**12, {}) == (torch.device("cpu"),)


def test_the_weights_are_where_they_were_put_and_none_is_lost() -> None:
    config = small_config(n_layers=3, rotary=None)
    model = random_model(config)
    before = weight_bytes(model)
    tokens = torch.arange(5)[None]
    logits = model(tokens)
    with LogicalDevices():
        first, second = torch.device("meta:0"), torch.device("meta:1")
        assert spread(model, [first, second], [1, 2]) == (first, second)
        assert model.devices == (first, second)
        assert [block.device for block in model.blocks] == [first, second, second]
        assert model.W_pos is not None
        assert (model.W_E.device, model.W_pos.device) == (first, first)
        assert (model.unembed_weight.device, model.b_U.device) == (second, second)
    assert weight_bytes(model) == before
    assert (model(tokens) - logits).abs().max() <= 1e-5


def test_a_tied_unembedding_stays_with_the_embedding() -> None:
    model = random_model(small_config())
    model.unembed_weight = model.W_E
    with LogicalDevices():
        first, second = torch.device("meta:0"), torch.device("meta:1")
        spread(model, [first, second], [1, 1])
        assert model.unembed_weight is model.W_E
        assert (model.W_E.device, model.b_U.device, model.blocks[1].device) == (first, first, second)


def test_several_devices_by_name_or_as_a_list() -> None:
    cpu = torch.device("cpu")
    for devices in ("cpu,cpu", "cpu:0, cpu:1", ["cpu", cpu], cpu, "cpu"):
        assert {device.type for device in place(random_model(small_config()), devices)} == {"cpu"}
    assert ves.load("frac_prevs", device=["cpu", "cpu"]).model.device == cpu


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("gpu", "device 'gpu' cannot be used here"),
        ("cpu,tpu9", "device 'tpu9' cannot be used here"),
        ("cpu,,cpu", "names no device; write cpu, cuda, or several such as cuda:0,cuda:1"),
        ("", "names no device"),
        ([], "names no device"),
        ("auto,cpu", "auto chooses by itself"),
    ],
)
def test_wrong_devices_are_refused_in_one_line(device: str, message: str) -> None:
    with pytest.raises(ves.BadInput, match=message) as refusal:
        ves.load("frac_prevs", device=device)
    assert "\n" not in str(refusal.value)


def test_logical_devices_do_not_mix() -> None:
    with LogicalDevices() as logical:
        one = torch.ones(2, device="meta:0")
        other = one.to("meta:1")
        assert logical.transfers == {("meta:0", "meta:1"): 1}
        with pytest.raises(AssertionError, match="mixes tensors on meta:0, meta:1"):
            one + other


def test_every_replica_has_gpus_of_its_own_while_there_are_any() -> None:
    of_one = [replica_devices("cuda:0", number, 4) for number in range(6)]
    assert of_one == ["cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:0", "cuda:1"]
    of_two = [replica_devices("cuda:0,cuda:1", number, 5) for number in range(3)]
    assert of_two == ["cuda:0,cuda:1", "cuda:2,cuda:3", "cuda:0,cuda:1"]
    assert replica_devices("cuda:3", 0, 1) == "cuda:0", "a worker that is shown one GPU counts from 0"
    assert replica_devices("cuda:0,cuda:1", 1, 1) == "cuda:0,cuda:1", "too few: the model says so itself"
    assert replica_devices("cpu", 3, 4) == "cpu"
