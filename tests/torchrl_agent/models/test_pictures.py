"""Networks that read pictures: their layers as in their papers, and what they are too small for."""

import pytest
import torch
from pretend_cuda import PretendCuda
from torch import nn

from torchrl_agent.modules.networks import ConvEncoder, ImpalaEncoder, NatureEncoder, Residual, channels_last


def convolutions(network):
    return [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]


def test_the_network_of_mnih_reads_84_by_84():
    network = NatureEncoder((4, 84, 84), 512, "relu")
    assert [(each.out_channels, each.kernel_size[0], each.stride[0]) for each in convolutions(network)] == [
        (32, 8, 4),
        (64, 4, 2),
        (64, 3, 1),
    ]
    assert network.network[-1][0].in_features == 64 * 7 * 7
    assert network(torch.zeros(5, 2, 4 * 84 * 84)).shape == (5, 2, 512)


def test_the_network_of_espeholt_has_fifteen_convolutions():
    network = ImpalaEncoder((3, 64, 64), 256, "relu")
    assert [each.out_channels for each in convolutions(network)] == [16] * 5 + [32] * 10
    assert network.network[-1][0].in_features == 32 * 8 * 8
    assert network(torch.zeros(5, 3 * 64 * 64)).shape == (5, 256)


def test_a_residual_block_adds_to_what_it_reads():
    block, picture = Residual(2, "relu"), torch.randn(1, 2, 5, 5)
    for layer in convolutions(block):
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)
    assert torch.equal(block(picture), picture)


@pytest.mark.parametrize("asked", [False, True])
@torch.no_grad()
def test_on_a_gpu_the_channels_of_a_pixel_lie_side_by_side_where_that_is_asked_for(asked):
    network = ConvEncoder((3, 6, 5), 8, 4, "relu")
    network.channels_last = asked
    picture, layouts = torch.randn(2, 90), []

    def note(layer, given):
        (value,) = given
        layouts.append(getattr(value, "on_cpu", value).is_contiguous(memory_format=torch.channels_last))

    convolutions(network)[0].register_forward_pre_hook(note)
    expected = network(picture)
    with PretendCuda():
        found = network.to("cuda")(picture.to("cuda")).cpu()
    torch.testing.assert_close(found, expected)
    assert layouts == [False, asked]


def test_members_of_a_population_may_lay_out_pictures_too():
    pictures = torch.randn(2, 3, 4, 5, 6)
    assert torch.equal(torch.vmap(channels_last)(pictures), pictures)


@pytest.mark.parametrize("side", [10, 36])
def test_the_deep_one_reads_small_pictures_too(side):
    assert ImpalaEncoder((1, side, side), 8, "relu")(torch.zeros(2, side * side)).shape == (2, 8)


def test_the_one_of_mnih_says_what_is_too_small_for_it():
    with pytest.raises(ValueError, match="too small for the encoder 'nature': use cnn"):
        NatureEncoder((1, 35, 36), 8, "relu")
