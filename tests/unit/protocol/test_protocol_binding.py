"""What the evidence commits to: no two states of a worker share a commitment (section 2)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from strongroom.protocol.binding import device_nonce, evidence_digest, report_data
from strongroom.protocol.errors import ProtocolError

ROOTS = st.binary(min_size=32, max_size=32)
KEY_IDS = st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=4)


@given(one=st.tuples(ROOTS, st.binary(max_size=50)), other=st.tuples(ROOTS, st.binary(max_size=50)))
def test_report_data_tells_roots_and_claims_apart(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> None:
    assert len(report_data(*one)) == 64
    assert (report_data(*one) == report_data(*other)) == (one == other)


def test_report_data_changes_with_one_space_in_the_claims() -> None:
    assert report_data(bytes(32), b'{"a":1}') != report_data(bytes(32), b'{"a": 1}')


@given(root=ROOTS, one=KEY_IDS, other=KEY_IDS)
def test_a_device_nonce_tells_lists_of_keys_apart(root: bytes, one: list[bytes], other: list[bytes]) -> None:
    assert len(device_nonce(root, one)) == 32
    assert (device_nonce(root, one) == device_nonce(root, other)) == (one == other)


def test_a_device_nonce_depends_on_the_order_of_the_keys() -> None:
    current, following = b"c" * 16, b"n" * 16
    assert device_nonce(bytes(32), [current, following]) != device_nonce(bytes(32), [following, current])


@given(root=ROOTS, other=ROOTS, keys=KEY_IDS)
def test_a_device_nonce_belongs_to_one_round(root: bytes, other: bytes, keys: list[bytes]) -> None:
    assume(root != other)
    assert device_nonce(root, keys) != device_nonce(other, keys)


@given(kind=st.text(st.characters(max_codepoint=127), min_size=2, max_size=20), report=st.binary(max_size=50))
def test_where_the_type_of_a_device_ends_is_part_of_its_digest(kind: str, report: bytes) -> None:
    assert evidence_digest(kind, report) != evidence_digest(kind[:-1], kind[-1].encode() + report)


def test_a_device_type_that_is_not_ascii_raises_our_own_error() -> None:
    with pytest.raises(ProtocolError):
        evidence_digest("nvidia-gp\u00fc", b"report")
