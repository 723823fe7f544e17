"""Generators of random numbers for "cuda", with the state that those of CUDA have.

The state of a CUDA generator is a seed and an offset: kernels that generate random numbers themselves read both, and
add to the offset what they use. The numbers of PyTorch's operators are those of a generator of the CPU here. Its own
state is remembered for each pair that a program has read.
"""

from __future__ import annotations

from typing import Any

import torch

from warpcheck.frontends.torch_cuda.tensors import CPU, CUDA
from warpcheck.hooks import torch_cuda as hooks

__all__ = ["Generator", "default_generator", "generator_of_numbers"]

# The most states of the CPU's generator that are remembered, of 5 KB each.
_MOST_REMEMBERED = 1024

# A step of the Philox generator gives four numbers, and operators of CUDA add multiples of four to the offset.
_NUMBERS_PER_OFFSET = 4


class _GeneratorType(type(torch.Generator)):  # type: ignore[misc]
    """The class of `Generator`, for which generators of PyTorch's own class, such as the default one, are instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch._C.Generator)


class Generator(torch.Generator, metaclass=_GeneratorType):
    """torch.Generator, which for "cuda" has numbers of the CPU and a state as on a GPU."""

    _philox: _PhiloxState | None = None

    def __new__(cls, device: Any = "cpu") -> Generator:
        generator: Generator = torch._C.Generator.__new__(cls, device="cpu")  # type: ignore[call-arg]
        if torch.device(device).type == "cuda":
            generator._philox = _PhiloxState(_CpuGenerator(generator))
        return generator

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CPU if self._philox is None else CUDA

    def get_state(self) -> torch.Tensor:
        return super().get_state() if self._philox is None else self._philox.read()

    def set_state(self, new_state: torch.Tensor) -> Generator:
        if self._philox is None:
            super().set_state(new_state)
        else:
            self._philox.write(new_state)
        return self

    def initial_seed(self) -> int:
        return super().initial_seed() if self._philox is None else self._philox.seed_and_offset()[0] % 2**64

    def get_offset(self) -> int:
        return super().get_offset() if self._philox is None else self._philox.seed_and_offset()[1]

    def set_offset(self, offset: int) -> Generator:
        if self._philox is None:
            super().set_offset(offset)
        else:
            self._philox.set(self._philox.seed_and_offset()[0], offset)
        return self


class _DefaultGenerator(Generator):
    """The default generator of the GPU. Its numbers are those of the CPU's default generator."""

    def __new__(cls) -> _DefaultGenerator:
        generator: _DefaultGenerator = torch._C.Generator.__new__(cls, device="cpu")  # type: ignore[call-arg]
        generator._philox = _PhiloxState(torch.default_generator)
        return generator

    def manual_seed(self, seed: int) -> _DefaultGenerator:
        torch.default_generator.manual_seed(seed)
        return self

    def seed(self) -> int:
        return torch.default_generator.seed()


class _CpuGenerator:
    """The generator of the CPU that a `Generator` also is, with the state that it has as such."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def get_state(self) -> torch.Tensor:
        return torch._C.Generator.get_state(self._generator)

    def set_state(self, state: torch.Tensor) -> None:
        torch._C.Generator.set_state(self._generator, state)

    def manual_seed(self, seed: int) -> None:
        torch._C.Generator.manual_seed(self._generator, seed)

    def initial_seed(self) -> int:
        return torch._C.Generator.initial_seed(self._generator)


class _PhiloxState:
    """The seed and the offset of a CUDA generator, which follow what a program does with a generator of the CPU.

    Args:
        numbers: The generator of the CPU.
    """

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers
        self._seed = 0
        self._offset = 0
        self._cpu_seed: int | None = None
        self._cpu_state = torch.empty(0)
        self._remembered: dict[tuple[int, int], torch.Tensor] = {}

    def seed_and_offset(self) -> tuple[int, int]:
        """Return seed and offset. The offset is larger than before if the CPU has generated numbers since then."""
        cpu_seed = self._numbers.initial_seed()
        cpu_state = self._numbers.get_state()
        if cpu_seed == self._cpu_seed and torch.equal(cpu_state, self._cpu_state):
            return self._seed, self._offset
        is_seeded = torch.equal(cpu_state, _state_of_seed(cpu_seed))
        if is_seeded or cpu_seed != self._cpu_seed:
            self._seed = _signed(cpu_seed)
            self._offset = 0
        if not is_seeded:
            self._offset += _NUMBERS_PER_OFFSET
        self._remember(cpu_seed, cpu_state)
        return self._seed, self._offset

    def _remember(self, cpu_seed: int, cpu_state: torch.Tensor) -> None:
        self._cpu_seed = cpu_seed
        self._cpu_state = cpu_state
        self._remembered[self._seed, self._offset] = cpu_state
        while len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]

    def set(self, seed: int, offset: int) -> None:
        """Set seed and offset, and let the CPU generate the numbers that follow them."""
        self._seed = seed
        self._offset = offset
        remembered = self._remembered.get((seed, offset))
        if remembered is None:
            # Another state for each offset, and at offset 0 that of the seed alone.
            self._numbers.manual_seed((seed + offset * 0x9E3779B97F4A7C15) % 2**64)
        else:
            self._numbers.set_state(remembered)
        self._remember(self._numbers.initial_seed(), self._numbers.get_state())

    def read(self) -> torch.Tensor:
        """Return the state as a CUDA generator does: the bytes of seed and offset."""
        return torch.tensor(self.seed_and_offset(), dtype=torch.int64, device=CPU).view(torch.uint8)

    def write(self, state: torch.Tensor) -> None:
        """Set the state that `read` has returned, or another one."""
        seed, offset = state.cpu().contiguous().view(torch.int64).tolist()
        self.set(seed, offset)


def _signed(seed: int) -> int:
    """Return a seed of 64 bits as a number with a sign."""
    return (seed + 2**63) % 2**64 - 2**63


def _state_of_seed(seed: int) -> torch.Tensor:
    """Return the state of a generator of the CPU that has just been seeded."""
    return torch._C.Generator(device="cpu").manual_seed(seed).get_state()


# The default generator of the GPU.
default_generator = _DefaultGenerator()


def generator_of_numbers(generator: torch._C.Generator) -> torch._C.Generator:
    """Return the generator of the CPU whose numbers an operator takes for a generator that it was given.

    PyTorch gives operators another Python object for the same generator.
    """
    address = hooks.GENERATOR_ADDRESS.of
    return torch.default_generator if address(generator) == address(default_generator) else generator
