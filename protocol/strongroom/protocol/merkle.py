"""The tree of nonces that lets one round of evidence answer many verifiers.

Source: docs/protocol.md, section 2; RFC 6962, section 2.1 (Merkle Tree Hash and audit paths).
"""

import hashlib
from collections.abc import Sequence

from strongroom.protocol.errors import MalformedNonce
from strongroom.protocol.limits import MAX_NONCE_BYTES, MAX_NONCES_IN_A_ROUND, MIN_NONCE_BYTES


def check_nonce(nonce: bytes) -> None:
    """Raise `MalformedNonce` unless `nonce` has 16 to 64 bytes."""
    if not MIN_NONCE_BYTES <= len(nonce) <= MAX_NONCE_BYTES:
        raise MalformedNonce(f"a nonce has {MIN_NONCE_BYTES} to {MAX_NONCE_BYTES} bytes, not {len(nonce)}")


def _leaf(nonce: bytes) -> bytes:
    return hashlib.sha256(b"\0" + len(nonce).to_bytes(2, "big") + nonce).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\1" + left + right).digest()


class NonceTree:
    """The tree over the nonces of one round, in order. Raises `MalformedNonce` for a bad nonce or number."""

    def __init__(self, nonces: Sequence[bytes]) -> None:
        if not 1 <= len(nonces) <= MAX_NONCES_IN_A_ROUND:
            raise MalformedNonce(f"a round has 1 to {MAX_NONCES_IN_A_ROUND} nonces, not {len(nonces)}")
        for nonce in nonces:
            check_nonce(nonce)
        # RFC 6962 trees are built level by level: an odd last node moves up unchanged.
        self._levels = [[_leaf(nonce) for nonce in nonces]]
        while len(level := self._levels[-1]) > 1:
            paired = [_node(level[i], level[i + 1]) for i in range(0, len(level) - 1, 2)]
            self._levels.append(paired + level[len(paired) * 2 :])

    @property
    def root(self) -> bytes:
        """The 32 bytes that report data and device nonces commit to."""
        return self._levels[-1][0]

    def path(self, index: int) -> list[bytes]:
        """The inclusion path of leaf `index`, from its sibling upwards."""
        path = []
        for level in self._levels[:-1]:
            sibling = index ^ 1
            if sibling < len(level):
                path.append(level[sibling])
            index //= 2
        return path


def root_of(nonce: bytes, path: Sequence[bytes], index: int, count: int) -> bytes:
    """The root that `path` gives for `nonce` as leaf `index` of `count`; raises `MalformedNonce`.

    The caller compares nothing: it recomputes the report data from this root, so a wrong path shows there.
    """
    check_nonce(nonce)
    if not 1 <= count <= MAX_NONCES_IN_A_ROUND or not 0 <= index < count:
        raise MalformedNonce("index and number of nonces do not fit")
    node, last, remaining = _leaf(nonce), count - 1, list(path)
    while last:
        # An odd last node has no sibling at this level and moves up unchanged.
        if index % 2 or index < last:
            if not remaining or len(remaining[0]) != 32:
                raise MalformedNonce("the inclusion path is too short or has a hash of the wrong length")
            sibling = remaining.pop(0)
            node = _node(sibling, node) if index % 2 else _node(node, sibling)
        index, last = index // 2, last // 2
    if remaining:
        raise MalformedNonce("the inclusion path is too long")
    return node
