"""Sealed requests: who may open one, what is refused and with which code, what shows before admission (section 3)."""

import hashlib
import os
from collections.abc import Sequence

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from strongroom.protocol import request
from strongroom.protocol.errors import MalformedKey, RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey, PublicIdentity
from strongroom.protocol.limits import MAX_SEALED_REQUEST_BYTES
from strongroom.protocol.padding import BadPadding, pad, request_size, unpad
from strongroom.protocol.request import RequestOpener, seal
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import (
    CacheProfile,
    Envelope,
    Head,
    Header,
    InferenceRequest,
    ResponseRecord,
    SealedRequest,
    StreamProfile,
)

EXAMPLE = InferenceRequest(path="/v1/chat/completions", body=b'{"model":"m"}')
REQUESTS = st.builds(
    InferenceRequest,
    path=st.text(max_size=20),
    headers=st.lists(st.builds(Header, name=st.text(max_size=5), value=st.text(max_size=5)), max_size=3),
    body=st.binary(max_size=3000),
    stream=st.builds(StreamProfile, padding=st.text(max_size=5), tick_ms=st.integers(0, 1000)),
    cache=st.builds(CacheProfile, reuse=st.booleans(), offload_cpu=st.booleans(), offload_disk=st.booleans()),
)


def sealed_to(*keys: IdentityKey, content: InferenceRequest = EXAMPLE) -> bytes:
    return seal([key.public for key in keys], content, random=os.urandom).sealed


def code_of(opener: RequestOpener, raw: bytes) -> WireCode:
    with pytest.raises(RequestRefused) as refused:
        opener.open(raw)
    return refused.value.code


def crafted(key: IdentityKey, plaintext: bytes, secret: bytes = bytes(32), others: Sequence[Envelope] = ()) -> bytes:
    """A message whose envelope and tags are right and whose plaintext is anything."""
    envelopes = [Envelope(key_id=key.public.key_id, sealed=key.public.seal(secret)), *others]
    ciphertext = request._request_key(Secret(secret)).encrypt(bytes(12), plaintext, request._aad(envelopes))
    return SealedRequest(envelopes=envelopes, ciphertext=ciphertext).SerializeToString()


@given(content=REQUESTS)
def test_a_sealed_request_opens_to_what_was_sealed(worker_key: IdentityKey, content: InferenceRequest) -> None:
    pending = RequestOpener([worker_key]).open(sealed_to(worker_key, content=content))
    admitted = pending.admit(fresh=True)
    assert admitted.request == content
    assert pending.key_id == worker_key.public.key_id


@given(length=st.integers(0, 5000))
@settings(max_examples=20)
def test_the_length_of_a_request_says_no_more_than_its_padded_size(worker_key: IdentityKey, length: int) -> None:
    content = InferenceRequest(body=bytes(length))
    empty = len(SealedRequest.FromString(sealed_to(worker_key, content=InferenceRequest())).ciphertext)
    ciphertext = SealedRequest.FromString(sealed_to(worker_key, content=content)).ciphertext
    assert len(ciphertext) == request_size(content.ByteSize()) + 16
    assert empty == 1024 + 16


@pytest.mark.parametrize("count", [2, 8])
def test_any_recipient_opens_the_request_and_finds_the_same_replay_id(count: int) -> None:
    keys = [IdentityKey.generate(os.urandom) for _ in range(count)]
    raw = sealed_to(*keys)
    pending = [RequestOpener([key]).open(raw) for key in keys]
    assert [p.key_id for p in pending] == [key.public.key_id for key in keys]
    assert len({p.replay_id for p in pending}) == 1
    assert all(p.admit(fresh=True).request == EXAMPLE for p in pending)


def test_a_worker_opens_what_was_sealed_to_its_next_key(worker_key: IdentityKey, next_key: IdentityKey) -> None:
    pending = RequestOpener([worker_key, next_key]).open(sealed_to(next_key))
    assert pending.key_id == next_key.public.key_id


def test_two_seals_of_one_request_share_no_replay_id(worker_key: IdentityKey) -> None:
    opener = RequestOpener([worker_key])
    first, second = opener.open(sealed_to(worker_key)), opener.open(sealed_to(worker_key))
    assert first.replay_id != second.replay_id
    assert len(first.replay_id) == request.REPLAY_ID_BYTES


def test_a_copied_request_has_the_replay_id_of_the_first(worker_key: IdentityKey) -> None:
    raw = sealed_to(worker_key)
    opener = RequestOpener([worker_key])
    assert opener.open(raw).replay_id == opener.open(raw).replay_id


def test_a_replayed_request_is_not_admitted(worker_key: IdentityKey) -> None:
    pending = RequestOpener([worker_key]).open(sealed_to(worker_key))
    with pytest.raises(RequestRefused) as refused:
        pending.admit(fresh=False)
    assert refused.value.code is WireCode.REPLAY


def test_a_pending_request_shows_an_id_and_a_key_and_nothing_of_its_content(worker_key: IdentityKey) -> None:
    content = InferenceRequest(path="/CANARY", headers=[Header(name="CANARY", value="CANARY")], body=b"CANARY")
    pending = RequestOpener([worker_key]).open(sealed_to(worker_key, content=content))
    public = {name: getattr(pending, name) for name in dir(pending) if not name.startswith("_")}
    assert set(public) == {"admit", "key_id", "replay_id"}
    assert b"CANARY" not in pending.key_id + pending.replay_id
    assert "CANARY" not in repr(pending) + str(pending) + repr(public)
    assert pending.admit(fresh=True).request.body == b"CANARY"


def test_every_byte_of_a_sealed_request_counts(worker_key: IdentityKey) -> None:
    raw = sealed_to(worker_key)
    opener = RequestOpener([worker_key])
    assert opener.open(raw).key_id == worker_key.public.key_id
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1 + position % 255
        assert code_of(opener, bytes(changed)) in {WireCode.MALFORMED, WireCode.UNKNOWN_KEY}


@given(data=st.data())
@settings(max_examples=200)
def test_a_changed_byte_is_refused_as_malformed_or_unknown_key(
    worker_key: IdentityKey, stranger_key: IdentityKey, data: st.DataObject
) -> None:
    raw = bytearray(sealed_to(*data.draw(st.permutations([worker_key, stranger_key]))))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert code_of(RequestOpener([worker_key]), bytes(raw)) in {WireCode.MALFORMED, WireCode.UNKNOWN_KEY}


@given(length=st.integers(0, 5000))
def test_a_truncated_request_is_refused(worker_key: IdentityKey, length: int) -> None:
    raw = sealed_to(worker_key)
    assert code_of(RequestOpener([worker_key]), raw[: length % len(raw)]) is WireCode.MALFORMED


@given(raw=st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(worker_key: IdentityKey, raw: bytes) -> None:
    assert code_of(RequestOpener([worker_key]), raw) in {WireCode.MALFORMED, WireCode.UNKNOWN_KEY}


@given(
    envelopes=st.lists(st.tuples(st.booleans(), st.binary(max_size=20), st.binary(max_size=40)), max_size=10),
    ciphertext=st.binary(max_size=40),
)
def test_an_arbitrary_message_is_refused(
    worker_key: IdentityKey, envelopes: list[tuple[bool, bytes, bytes]], ciphertext: bytes
) -> None:
    parts = [Envelope(key_id=worker_key.public.key_id if own else key, sealed=s) for own, key, s in envelopes]
    raw = SealedRequest(envelopes=parts, ciphertext=ciphertext).SerializeToString()
    assert code_of(RequestOpener([worker_key]), raw) in {WireCode.MALFORMED, WireCode.UNKNOWN_KEY}


@given(plaintext=st.one_of(st.binary(max_size=100), st.binary(max_size=60).map(lambda raw: pad(raw, 1024))))
def test_an_arbitrary_plaintext_is_a_request_or_malformed(worker_key: IdentityKey, plaintext: bytes) -> None:
    raw = crafted(worker_key, plaintext)
    try:
        content = InferenceRequest.FromString(unpad(plaintext))
        right_size = len(plaintext) == 1024
    except (BadPadding, DecodeError):
        right_size = False
    if right_size:
        assert RequestOpener([worker_key]).open(raw).admit(fresh=True).request == content
    else:
        assert code_of(RequestOpener([worker_key]), raw) is WireCode.MALFORMED


def test_a_crafted_message_opens_when_everything_is_right(worker_key: IdentityKey) -> None:
    good = crafted(worker_key, pad(EXAMPLE.SerializeToString(), 1024))
    assert RequestOpener([worker_key]).open(good).admit(fresh=True).request == EXAMPLE


@pytest.mark.parametrize("size", [512, 1023, 1025, 1088, 2048])
def test_a_request_padded_to_another_size_is_malformed(worker_key: IdentityKey, size: int) -> None:
    raw = crafted(worker_key, pad(EXAMPLE.SerializeToString(), size))
    assert code_of(RequestOpener([worker_key]), raw) is WireCode.MALFORMED


@pytest.mark.parametrize("length", [0, 16, 31, 33, 64])
def test_an_envelope_with_a_secret_of_another_length_is_malformed(worker_key: IdentityKey, length: int) -> None:
    raw = crafted(worker_key, pad(EXAMPLE.SerializeToString(), 1024), secret=bytes(length))
    assert code_of(RequestOpener([worker_key]), raw) is WireCode.MALFORMED


def test_a_request_to_a_key_that_is_not_here_is_an_unknown_key(
    worker_key: IdentityKey, stranger_key: IdentityKey
) -> None:
    assert code_of(RequestOpener([worker_key]), sealed_to(stranger_key)) is WireCode.UNKNOWN_KEY
    assert code_of(RequestOpener([]), sealed_to(worker_key)) is WireCode.UNKNOWN_KEY


def test_a_request_to_a_retired_key_is_an_unknown_key(worker_key: IdentityKey, stranger_key: IdentityKey) -> None:
    opener = RequestOpener([worker_key], retired=[stranger_key.public.key_id])
    assert code_of(opener, sealed_to(stranger_key)) is WireCode.UNKNOWN_KEY


def test_two_envelopes_to_one_worker_are_malformed(worker_key: IdentityKey, next_key: IdentityKey) -> None:
    raw = sealed_to(worker_key, next_key)
    assert RequestOpener([worker_key]).open(raw).key_id == worker_key.public.key_id
    assert code_of(RequestOpener([worker_key, next_key]), raw) is WireCode.MALFORMED
    assert code_of(RequestOpener([worker_key], retired=[next_key.public.key_id]), raw) is WireCode.MALFORMED
    assert code_of(RequestOpener([next_key], retired=[worker_key.public.key_id]), raw) is WireCode.MALFORMED


def test_two_envelopes_for_one_key_are_malformed_even_if_sealed_so(worker_key: IdentityKey) -> None:
    plaintext = pad(EXAMPLE.SerializeToString(), 1024)
    own = Envelope(key_id=worker_key.public.key_id, sealed=worker_key.public.seal(bytes(32)))
    strange, other = Envelope(key_id=b"x" * 16, sealed=b"x"), Envelope(key_id=b"y" * 16, sealed=b"y")
    opener = RequestOpener([worker_key])
    assert opener.open(crafted(worker_key, plaintext, others=[strange, other])).admit(fresh=True).request == EXAMPLE
    for others in ([own], [strange, strange]):
        assert code_of(opener, crafted(worker_key, plaintext, others=others)) is WireCode.MALFORMED


@pytest.mark.parametrize("change", ["swapped", "removed", "added"])
def test_the_list_of_envelopes_cannot_be_changed(
    worker_key: IdentityKey, stranger_key: IdentityKey, next_key: IdentityKey, change: str
) -> None:
    message = SealedRequest.FromString(sealed_to(worker_key, stranger_key))
    first, second = message.envelopes
    added = Envelope(key_id=next_key.public.key_id, sealed=next_key.public.seal(bytes(32)))
    lists = {"swapped": [second, first], "removed": [first], "added": [first, second, added]}
    changed = SealedRequest(envelopes=lists[change], ciphertext=message.ciphertext)
    assert code_of(RequestOpener([worker_key]), changed.SerializeToString()) is WireCode.MALFORMED


def test_parts_of_two_requests_do_not_open_together(worker_key: IdentityKey) -> None:
    one, other = (SealedRequest.FromString(sealed_to(worker_key)) for _ in range(2))
    mixed = SealedRequest(envelopes=one.envelopes, ciphertext=other.ciphertext)
    assert code_of(RequestOpener([worker_key]), mixed.SerializeToString()) is WireCode.MALFORMED


def test_nine_envelopes_are_malformed_and_eight_are_not(worker_key: IdentityKey) -> None:
    others = [Envelope(key_id=bytes([i]) * 16, sealed=b"x") for i in range(8)]
    plaintext = pad(EXAMPLE.SerializeToString(), 1024)
    opener = RequestOpener([worker_key])
    assert opener.open(crafted(worker_key, plaintext, others=others[:7])).admit(fresh=True).request == EXAMPLE
    assert code_of(opener, crafted(worker_key, plaintext, others=others)) is WireCode.MALFORMED


@pytest.mark.parametrize(("key_id", "sealed"), [(bytes(15), 10), (bytes(17), 10), (b"", 10), (bytes(16), 2**16)])
def test_an_envelope_to_someone_else_must_be_well_formed_too(
    worker_key: IdentityKey, key_id: bytes, sealed: int
) -> None:
    message = SealedRequest.FromString(sealed_to(worker_key))
    message.envelopes.append(Envelope(key_id=key_id, sealed=bytes(sealed)))
    assert code_of(RequestOpener([worker_key]), message.SerializeToString()) is WireCode.MALFORMED


def test_a_request_above_the_limit_is_too_large_before_anything_is_parsed(worker_key: IdentityKey) -> None:
    opener = RequestOpener([worker_key])
    assert code_of(opener, bytes(MAX_SEALED_REQUEST_BYTES + 1)) is WireCode.TOO_LARGE
    assert code_of(opener, bytes(MAX_SEALED_REQUEST_BYTES)) is WireCode.MALFORMED


def test_a_client_does_not_seal_what_the_worker_would_find_too_large(worker_key: IdentityKey) -> None:
    content = InferenceRequest(body=bytes(MAX_SEALED_REQUEST_BYTES))
    with pytest.raises(ValueError, match="limit"):
        seal([worker_key.public], content, random=os.urandom)


def test_a_request_is_sealed_to_1_to_8_different_keys(worker_key: IdentityKey) -> None:
    nine = [IdentityKey.generate(os.urandom).public for _ in range(9)]
    for recipients in ([], nine, [worker_key.public, worker_key.public]):
        with pytest.raises(ValueError, match="1 to 8 different keys"):
            seal(recipients, EXAMPLE, random=os.urandom)


def test_a_bad_key_among_the_recipients_stops_the_request(worker_key: IdentityKey) -> None:
    with pytest.raises(MalformedKey):
        seal([worker_key.public, PublicIdentity(bytes(1216))], EXAMPLE, random=os.urandom)


def test_the_secret_of_a_request_is_all_that_is_asked_of_the_random_source(worker_key: IdentityKey) -> None:
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    exchange = seal([worker_key.public], EXAMPLE, random=random)
    assert asked == [32]
    message = SealedRequest.FromString(exchange.sealed)
    assert worker_key.open(message.envelopes[0].sealed).expose() == bytes(range(32))


def test_client_and_worker_agree_on_the_answer_and_nobody_else_can_open_it(
    worker_key: IdentityKey, stranger_key: IdentityKey
) -> None:
    exchange = seal([worker_key.public, stranger_key.public], EXAMPLE, random=os.urandom)
    admitted = RequestOpener([stranger_key]).open(exchange.sealed).admit(fresh=True)
    record = ResponseRecord(frames=[{"head": Head(status=200)}, {"end": {}}]).SerializeToString()
    payload = admitted.respond(os.urandom(32)).seal(record, size=64, last=True)
    opener = exchange.response()
    assert opener.receive(payload)[0] == Head(status=200)
    opener.finish()
    assert payload[:16] == stranger_key.public.key_id


def test_the_transcript_hash_covers_envelopes_and_ciphertext(worker_key: IdentityKey) -> None:
    raw = sealed_to(worker_key)
    message = SealedRequest.FromString(raw)
    (envelope,) = message.envelopes
    aad = b"strongroom/1 request\1" + envelope.key_id + len(envelope.sealed).to_bytes(2, "big") + envelope.sealed
    admitted = RequestOpener([worker_key]).open(raw).admit(fresh=True)
    assert admitted._keys.transcript_hash == hashlib.sha256(aad + message.ciphertext).digest()


def test_a_request_has_one_answer(worker_key: IdentityKey) -> None:
    """A second sealer under the same response nonce would use every nonce of the first again."""
    admitted = RequestOpener([worker_key]).open(sealed_to(worker_key)).admit(fresh=True)
    admitted.respond(bytes(32))
    with pytest.raises(ValueError, match="one answer"):
        admitted.respond(bytes(32))
