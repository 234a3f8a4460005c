"""The tree of nonces against the recursive definition of RFC 6962, and paths that prove nothing (section 2)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.errors import MalformedNonce
from strongroom.protocol.merkle import NonceTree, check_nonce, root_of

NONCES = st.binary(min_size=16, max_size=64)
ROUNDS = st.lists(NONCES, min_size=1, max_size=40)


def leaf(nonce: bytes) -> bytes:
    return hashlib.sha256(b"\0" + len(nonce).to_bytes(2, "big") + nonce).digest()


def rfc6962_root(nonces: list[bytes]) -> bytes:
    if len(nonces) == 1:
        return leaf(nonces[0])
    split = 1 << (len(nonces) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + rfc6962_root(nonces[:split]) + rfc6962_root(nonces[split:])).digest()


def rfc6962_path(index: int, nonces: list[bytes]) -> list[bytes]:
    if len(nonces) == 1:
        return []
    split = 1 << (len(nonces) - 1).bit_length() - 1
    if index < split:
        return [*rfc6962_path(index, nonces[:split]), rfc6962_root(nonces[split:])]
    return [*rfc6962_path(index - split, nonces[split:]), rfc6962_root(nonces[:split])]


def numbered(count: int) -> list[bytes]:
    return [i.to_bytes(16, "big") for i in range(count)]


@pytest.mark.parametrize("count", [*range(1, 34), 1023, 1024])
def test_root_and_paths_are_those_of_rfc_6962(count: int) -> None:
    nonces = numbered(count)
    tree = NonceTree(nonces)
    assert tree.root == rfc6962_root(nonces)
    for index in {*range(min(count, 33)), count // 2, count - 1}:
        assert tree.path(index) == rfc6962_path(index, nonces)
        assert root_of(nonces[index], tree.path(index), index, count) == tree.root


@given(nonces=ROUNDS)
def test_every_verifier_of_a_round_finds_the_same_root(nonces: list[bytes]) -> None:
    tree = NonceTree(nonces)
    roots = {root_of(nonce, tree.path(i), i, len(nonces)) for i, nonce in enumerate(nonces)}
    assert roots == {tree.root}


@given(nonces=ROUNDS, other=NONCES, data=st.data())
def test_a_nonce_that_was_not_in_the_round_gives_another_root(
    nonces: list[bytes], other: bytes, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(nonces) - 1))
    if other != nonces[index]:
        assert root_of(other, NonceTree(nonces).path(index), index, len(nonces)) != NonceTree(nonces).root


@given(nonces=st.lists(NONCES, min_size=2, max_size=40), data=st.data())
def test_a_changed_path_gives_another_root(nonces: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(nonces) - 1))
    tree = NonceTree(nonces)
    path = [bytearray(step) for step in tree.path(index)]
    path[data.draw(st.integers(0, len(path) - 1))][data.draw(st.integers(0, 31))] ^= data.draw(st.integers(1, 255))
    assert root_of(nonces[index], [bytes(step) for step in path], index, len(nonces)) != tree.root


@given(nonces=st.lists(NONCES, min_size=2, max_size=40, unique=True), data=st.data())
def test_a_path_does_not_serve_another_index(nonces: list[bytes], data: st.DataObject) -> None:
    index, wrong = data.draw(st.permutations(range(len(nonces))))[:2]
    tree = NonceTree(nonces)
    try:
        root = root_of(nonces[index], tree.path(index), wrong, len(nonces))
    except MalformedNonce:
        return
    assert root != tree.root


@given(nonces=ROUNDS, data=st.data())
def test_a_path_that_is_too_short_or_too_long_is_refused(nonces: list[bytes], data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(nonces) - 1))
    path = NonceTree(nonces).path(index)
    with pytest.raises(MalformedNonce):
        root_of(nonces[index], [*path, bytes(32)], index, len(nonces))
    if path:
        with pytest.raises(MalformedNonce):
            root_of(nonces[index], path[:-1], index, len(nonces))


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_a_path_with_a_hash_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MalformedNonce):
        root_of(bytes(16), [bytes(length)], 0, 2)


@given(
    nonce=st.binary(max_size=70),
    path=st.lists(st.binary(min_size=30, max_size=33), max_size=12),
    index=st.integers(-2, 2**32),
    count=st.integers(-2, 2**32),
)
def test_arbitrary_paths_give_a_root_or_malformed_nonce(
    nonce: bytes, path: list[bytes], index: int, count: int
) -> None:
    try:
        root = root_of(nonce, path, index, count)
    except MalformedNonce:
        return
    assert len(root) == 32


@pytest.mark.parametrize(("index", "count"), [(0, 0), (1, 1), (-1, 1), (5, 5), (0, 1025), (0, 2**32), (1024, 1024)])
def test_an_index_outside_the_round_is_refused(index: int, count: int) -> None:
    with pytest.raises(MalformedNonce):
        root_of(bytes(16), [], index, count)


@pytest.mark.parametrize("length", [0, 1, 15, 65, 1000])
def test_a_nonce_outside_16_to_64_bytes_is_refused(length: int) -> None:
    with pytest.raises(MalformedNonce):
        check_nonce(bytes(length))
    with pytest.raises(MalformedNonce):
        NonceTree([bytes(16), bytes(length)])
    with pytest.raises(MalformedNonce):
        root_of(bytes(length), [], 0, 1)


@pytest.mark.parametrize("length", [16, 64])
def test_a_nonce_at_a_limit_is_accepted(length: int) -> None:
    check_nonce(bytes(length))
    assert NonceTree([bytes(length)]).root == leaf(bytes(length))


@pytest.mark.parametrize("count", [0, 1025])
def test_a_round_outside_1_to_1024_nonces_is_refused(count: int) -> None:
    with pytest.raises(MalformedNonce):
        NonceTree(numbered(count))


def test_an_inner_node_cannot_pass_as_a_nonce() -> None:
    # Without the prefixes 0x00 and 0x01, the 64 bytes of two hashes would be a leaf with the hash of their node.
    nonces = numbered(2)
    assert root_of(leaf(nonces[0]) + leaf(nonces[1]), [], 0, 1) != NonceTree(nonces).root


def test_where_a_nonce_ends_is_part_of_its_leaf() -> None:
    assert NonceTree([bytes(16), bytes(17)]).root != NonceTree([bytes(17), bytes(16)]).root
    assert NonceTree([bytes(16)]).root != NonceTree([bytes(17)]).root
