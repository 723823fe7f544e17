"""Test the full models of week 15: their numbers of parameters and their workloads."""

from __future__ import annotations

import torch

from kernelpath.show import models

TINY_DECODER = models.DecoderConfig(layers=2, width=32, heads=2, vocabulary=50, context=16)
TINY_RESNET = models.ResNetConfig(blocks=(1, 1, 1, 1), width=8, classes=10)


def test_the_models_have_the_published_numbers_of_parameters() -> None:
    """OpenAI's checkpoint of GPT-2 has 124,439,808 parameters, and the ResNet-50 of torchvision has 25,557,032."""
    with torch.device("meta"):
        assert models.parameters(models.Decoder(models.DecoderConfig())) == 124_439_808
        assert models.parameters(models.ResNet(models.ResNetConfig())) == 25_557_032


def test_generation_with_a_cache_equals_a_forward_pass_over_the_sequence() -> None:
    torch.manual_seed(0)
    decoder = models.Decoder(TINY_DECODER).eval()
    tokens = torch.randint(50, (3, 16))
    caches = [torch.zeros(2, 3, 2, 16, 16) for _ in range(2)]
    with torch.inference_mode():
        full_sequence = decoder(tokens)
        steps = [decoder(tokens[:, i : i + 1], caches, torch.tensor([i])) for i in range(16)]
    torch.testing.assert_close(torch.cat(steps, 1), full_sequence, rtol=1e-4, atol=1e-5)


def test_a_resnet_shrinks_images_by_32() -> None:
    network = models.ResNet(TINY_RESNET)
    assert network.stages(network.stem(torch.zeros(1, 3, 64, 64))).shape == (1, 256, 2, 2)


def test_the_workloads_are_measured_without_a_gpu() -> None:
    sizes = {"batch": 1, "tokens": 8, "sequences": 2, "images": 2, "pixels": 32}
    measured = models.record("cpu", TINY_DECODER, TINY_RESNET, sizes, steps=1)
    assert [workload["unit"] for workload in measured.values()] == ["tokens", "tokens", "images"]
    for workload in measured.values():
        assert workload["rate"] > 0
        assert len(workload["top"]) == 3
        assert "reached" not in workload
