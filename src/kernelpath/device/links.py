"""Translate addresses in memory between a submission's process and the machine: each is a storage and an offset."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from kernelpath.device.elements import Bytes, InvalidRequest
from kernelpath.device.messages import Link
from warpcheck.pointers import LEAST, MOST, WORD, Words, leads_into, words

# One key for the whole process: it serves both processes of a submission, whose transcripts are compared.
_KEY = secrets.token_bytes(16)

# A kernel may learn the address of a storage modulo this number.
_VISIBLE_ALIGNMENT = 16


def find_links(values: Words, storages: Iterable[tuple[int, int, int]]) -> list[Link]:
    """Find the words that are addresses in storages. A storage is (number, address, size in bytes)."""
    # Most contents have no number in the range of addresses above the heap. Then no storage has to be searched.
    candidates = np.flatnonzero((values >= LEAST) & (values < MOST))
    links = []
    for number, address, nbytes in storages if candidates.size else ():
        is_inside = leads_into(values[candidates], address, address + nbytes)
        if is_inside.any():
            links.append(Link(number, address, candidates[is_inside].astype(np.int64).tobytes()))
    return links


class RelocatedContent:
    """The content of a storage, with its addresses translated from the submission's process.

    Attributes:
        local: The content with the addresses of this process.
        canonical: The content for the transcript, with a keyed placeholder plus the offset instead of each address. A
            submission cannot guess the placeholder; otherwise a number that it computes could pass for an address.
    """

    def __init__(
        self, content: Bytes, links: Sequence[Link], address_of: Callable[[int], tuple[int, int, str]]
    ) -> None:
        """Translate the addresses in `content` that `links` names.

        Args:
            content: The bytes in the submission's process.
            links: The words that are addresses.
            address_of: Returns a storage's address in this process, its size in bytes, and its name in the transcript.

        Raises:
            InvalidRequest: A word is not an address in its storage.
        """
        # Without addresses, both are the content itself, and gigabytes need no copy.
        self.local = content.copy() if links else content
        self.canonical = content.copy() if links else content
        self._indices: list[Words] = []
        self._targets: list[tuple[int, int, int]] = []
        local_words = words(self.local)
        canonical_words = words(self.canonical)
        for link in links:
            address, nbytes, name = address_of(link.storage)
            indices = words(np.frombuffer(link.words, np.uint8))
            if indices.size and not 0 <= indices.min() <= indices.max() < local_words.size:
                raise InvalidRequest("an address is not inside its storage")
            offsets = words(content)[indices] - link.base
            # The end of a storage counts as inside, as in Client._pointer.
            if indices.size and not 0 <= offsets.min() <= offsets.max() <= nbytes:
                raise InvalidRequest(f"an address is not inside storage {link.storage}")
            local_words[indices] = address + offsets
            canonical_words[indices] = _placeholder(name, nbytes, address % _VISIBLE_ALIGNMENT) + offsets
            self._indices.append(indices)
            self._targets.append((address, nbytes, link.base))

    def extend_to_words(self, is_different: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Extend a mask of changed bytes to whole words at addresses, whose bytes the submission does not choose."""
        rows = is_different[: is_different.size // WORD * WORD].reshape(-1, WORD)
        for indices in self._indices:
            rows[indices] = rows[indices].any(axis=1, keepdims=True)
        return is_different

    def to_client(self, memory: Bytes) -> bytes:
        """Return memory with the addresses of the submission's process in place of those of this process."""
        if not self._targets:
            return memory.tobytes()
        content = memory.copy()
        local_words = words(memory)
        client_words = words(content)
        for address, nbytes, base in self._targets:
            is_inside = leads_into(local_words, address, address + nbytes)
            client_words[is_inside] = local_words[is_inside] - address + base
        return content.tobytes()


def _placeholder(*storage: str | int) -> np.int64:
    """Return the placeholder of a storage in transcripts: a keyed hash of all that a kernel may learn from it."""
    digest = hashlib.blake2b(repr(storage).encode(), digest_size=WORD, key=_KEY).digest()
    return np.int64(np.frombuffer(digest, np.int64)[0])
