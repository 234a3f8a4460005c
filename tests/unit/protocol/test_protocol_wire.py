"""Messages of very many tiny fields are refused before protobuf makes an object of each."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.limits import MAX_REQUEST_FIELDS
from strongroom.protocol.request import RequestOpener
from strongroom.protocol.v1.strongroom_pb2 import Header, InferenceRequest
from strongroom.protocol.wire import TooManyFields, check_field_count

EMPTY_ENVELOPE = b"\x0a\x00"
EMPTY_HEADER = b"\x12\x00"


@given(headers=st.lists(st.text(max_size=20), max_size=30), body=st.binary(max_size=300), path=st.text(max_size=30))
def test_whatever_protobuf_writes_within_the_limit_passes(headers: list[str], body: bytes, path: str) -> None:
    message = InferenceRequest(path=path, body=body, headers=[Header(name=name) for name in headers])
    check_field_count(message.SerializeToString(), MAX_REQUEST_FIELDS)


@given(raw=st.binary(max_size=60), limit=st.integers(0, 10))
def test_any_bytes_pass_or_raise_our_own_error(raw: bytes, limit: int) -> None:
    try:
        check_field_count(raw, limit)
    except TooManyFields:
        pass
    else:
        assert raw == b"" or limit > 0


@pytest.mark.parametrize("number", [0, 1, 5])
def test_the_limit_is_exact(number: int) -> None:
    check_field_count(EMPTY_HEADER * number, number)
    with pytest.raises(TooManyFields):
        check_field_count(EMPTY_HEADER * (number + 1), number)


def test_millions_of_envelopes_cost_no_memory(worker_key: IdentityKey) -> None:
    raw = EMPTY_ENVELOPE * 2_000_000
    opener = RequestOpener([worker_key])
    tracemalloc.start()
    try:
        with pytest.raises(RequestRefused) as refusal:
            opener.open(raw)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert refusal.value.code is WireCode.MALFORMED
