"""Lengths that say little: Padmé for requests, buckets and constant sizes for responses.

Source: docs/protocol.md, sections 3 and 4; Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and
Communication with PURBs" (PETS 2019) for Padmé.
"""

import dataclasses
import re

from strongroom.protocol.errors import BadProfile, ProtocolError
from strongroom.protocol.limits import (
    MAX_PADDING_BYTES,
    MAX_TICK_MS,
    MIN_PADDING_BYTES,
    MIN_REQUEST_PLAINTEXT_BYTES,
)

_PREFIX_BYTES = 4
_PROFILE = re.compile(r"(none)|(bucket|constant)-([1-9][0-9]{0,6})", re.ASCII)
_STRENGTH = ("none", "bucket", "constant")


class BadPadding(ProtocolError):
    """A plaintext whose length prefix, zeros or total length are not what the padding rule gives."""


def padme(length: int) -> int:
    """The smallest Padmé size that holds `length` bytes: at most 12 % more, O(log log) bits of leakage."""
    if length < 2:
        return length
    exponent = length.bit_length() - 1
    low_bits = exponent - exponent.bit_length()
    mask = (1 << low_bits) - 1
    return (length + mask) & ~mask


def request_size(length: int) -> int:
    """Size of the padded plaintext of a request of `length` bytes, length prefix included."""
    return max(padme(_PREFIX_BYTES + length), MIN_REQUEST_PLAINTEXT_BYTES)


def pad(content: bytes, size: int) -> bytes:
    """`u32(len(content)) || content || zeros`, `size` bytes in all."""
    if _PREFIX_BYTES + len(content) > size:
        raise ValueError(f"{len(content)} bytes do not fit into {size}")
    return (len(content).to_bytes(_PREFIX_BYTES, "big") + content).ljust(size, b"\0")


def unpad(padded: bytes) -> bytes:
    """Undo `pad`; raises `BadPadding` unless the prefix fits and the rest is zeros."""
    length = int.from_bytes(padded[:_PREFIX_BYTES], "big")
    end = _PREFIX_BYTES + length
    if len(padded) < end or padded.count(0, end) != len(padded) - end:
        raise BadPadding("length prefix or zero padding is wrong")
    return padded[_PREFIX_BYTES:end]


@dataclasses.dataclass(frozen=True)
class StreamShape:
    """How a response is cut into records: `none`, `bucket-N` (multiples of N bytes) or `constant-N`.

    `size` is N, the plaintext bytes of a record; `tick_ms` the time over which frames are grouped.
    """

    kind: str
    size: int
    tick_ms: int

    @classmethod
    def parse(cls, padding: str, tick_ms: int) -> "StreamShape":
        """Read the two fields of a `StreamProfile` or of `claims.stream`; raises `BadProfile`."""
        match = _PROFILE.fullmatch(padding)
        if match is None:
            raise BadProfile("padding must be none, bucket-N or constant-N")
        if not 0 <= tick_ms <= MAX_TICK_MS:
            raise BadProfile(f"tick_ms must be from 0 to {MAX_TICK_MS}")
        if match[1]:
            return cls("none", 1, tick_ms)
        kind, size = match[2], int(match[3])
        if not MIN_PADDING_BYTES <= size <= MAX_PADDING_BYTES:
            raise BadProfile(f"the size in padding must be from {MIN_PADDING_BYTES} to {MAX_PADDING_BYTES} bytes")
        if kind == "constant" and tick_ms == 0:
            raise BadProfile("constant padding needs a tick_ms of at least 1")
        return cls(kind, size, tick_ms)

    @property
    def padding(self) -> str:
        """The text form, as in `claims.stream.padding`."""
        return self.kind if self.kind == "none" else f"{self.kind}-{self.size}"

    def covers(self, demand: "StreamShape") -> bool:
        """Whether this shape hides at least as much as `demand` in each of kind, size and tick."""
        return self == self.stronger(demand)

    def stronger(self, other: "StreamShape") -> "StreamShape":
        """The weakest shape that covers both: the stronger kind, the larger size, the longer tick."""
        kind = max(self.kind, other.kind, key=_STRENGTH.index)
        return StreamShape(kind, max(self.size, other.size), max(self.tick_ms, other.tick_ms))

    def record_size(self, length: int) -> int:
        """Plaintext size of a record that carries `length` bytes of frames."""
        needed = _PREFIX_BYTES + length
        return -(-needed // self.size) * self.size

    def capacity(self, limit: int) -> int:
        """The most bytes of frames that one record may carry, `limit` bytes of plaintext being allowed."""
        whole = self.size if self.kind == "constant" else limit // self.size * self.size
        return whole - _PREFIX_BYTES
