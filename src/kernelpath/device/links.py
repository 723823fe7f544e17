"""Addresses in a submission's memory, as the machine's process keeps them: a storage and an offset."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kernelpath.device.elements import Bytes, Refused
from kernelpath.device.messages import Link
from warpcheck.pointers import LEAST, MOST, WORD, Words, leads_into, words

_KEY = secrets.token_bytes(16)
_SEEN = 16
"""What a kernel learns from where a storage lies: its address modulo this."""


def links(values: Words, storages: Iterable[tuple[int, int, int]]) -> list[Link]:
    """The words that are addresses in storages, each of which is (number, address, bytes)."""
    places = np.flatnonzero((values >= LEAST) & (values < MOST))
    found = []
    for number, address, nbytes in storages if places.size else ():
        inside = leads_into(values[places], address, address + nbytes)
        if inside.any():
            found.append(Link(number, address, places[inside].astype(np.int64).tobytes()))
    return found


class Linked:
    """A storage's content, with the addresses that hold in this process in place of the submission's.

    here: with the addresses that hold here. shown: for the transcript, with what stands for a storage and an offset,
    which no submission can guess: else a number that it computes would look like an address.
    """

    def __init__(self, content: Bytes, told: Sequence[Link], address_of: Callable[[int], tuple[int, int, str]]) -> None:
        """address_of: a storage's address here, its bytes, and its name in the transcript.

        Raises Refused for words that are no such address.
        """
        self.here, self.shown = (content, content) if not told else (content.copy(), content.copy())
        self._places: list[Words] = []
        self._spans: list[tuple[int, int, int]] = []
        here, shown = words(self.here), words(self.shown)
        for link in told:
            address, nbytes, name = address_of(link.storage)
            places = words(np.frombuffer(link.words, np.uint8))
            if places.size and not 0 <= places.min() <= places.max() < here.size:
                raise Refused("an address is not inside its storage")
            offsets = words(content)[places] - link.base
            if places.size and not 0 <= offsets.min() <= offsets.max() <= nbytes:
                raise Refused(f"an address is not inside storage {link.storage}")
            here[places] = address + offsets
            shown[places] = _sign(name, nbytes, address % _SEEN) + offsets
            self._places.append(places)
            self._spans.append((address, nbytes, link.base))

    def whole(self, different: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which bytes are different, where an address is so as a whole: its bytes are not the submission's doing."""
        rows = different[: different.size // WORD * WORD].reshape(-1, WORD)
        for places in self._places:
            rows[places] = rows[places].any(axis=1, keepdims=True)
        return different

    def told(self, memory: Bytes) -> bytes:
        """Memory as the submission's process has it: addresses in the same storages are its own again."""
        if not self._spans:
            return memory.tobytes()
        content = memory.copy()
        values, own = words(memory), words(content)
        for address, nbytes, base in self._spans:
            inside = leads_into(values, address, address + nbytes)
            own[inside] = values[inside] - address + base
        return content.tobytes()


def _sign(*storage: str | int) -> np.int64:
    """What stands for a storage in a transcript: for its name, and for all that its address tells a kernel."""
    digest = hashlib.blake2b(repr(storage).encode(), digest_size=WORD, key=_KEY).digest()
    return np.int64(np.frombuffer(digest, np.int64)[0])
