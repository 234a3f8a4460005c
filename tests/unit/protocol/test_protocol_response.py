"""The record layer: nothing but the whole response, in order, from the worker that was asked (section 4)."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strongroom.protocol.errors import MalformedResponse
from strongroom.protocol.limits import MAX_RECORD_PLAINTEXT_BYTES
from strongroom.protocol.padding import pad
from strongroom.protocol.response import RecordKeys, ResponseOpener, ResponseSealer
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import End, Frame, Head, Header, ResponseRecord

KEY_ID, OTHER_KEY_ID = b"k" * 16, b"o" * 16
NONCE = b"n" * 32
KEYS = RecordKeys(Secret(b"s" * 32), b"t" * 32)
HEAD, BODY, END = Frame(head=Head(status=200)), Frame(body=b"body"), Frame(end=End())
PIECES = st.lists(st.lists(st.binary(max_size=20), max_size=3), min_size=1, max_size=6)


def content(*frames: Frame) -> bytes:
    return ResponseRecord(frames=frames).SerializeToString()


def sealed(
    *records: Sequence[Frame], keys: RecordKeys = KEYS, key_id: bytes = KEY_ID, nonce: bytes = NONCE
) -> list[bytes]:
    sealer = ResponseSealer(keys, key_id, nonce)
    return [sealer.seal(content(*r), size=256, last=i == len(records) - 1) for i, r in enumerate(records)]


def response(pieces: list[list[bytes]], **where: Any) -> list[bytes]:
    """The payloads of a response whose record `i` carries the pieces `pieces[i]`."""
    records = [[Frame(body=piece) for piece in record] for record in pieces]
    records[0].insert(0, HEAD)
    records[-1].append(END)
    return sealed(*records, **where)


def opener(keys: RecordKeys = KEYS) -> ResponseOpener:
    return ResponseOpener(keys, frozenset({KEY_ID, OTHER_KEY_ID}))


def opened(payloads: Iterable[bytes], keys: RecordKeys = KEYS) -> list[Head | bytes | End]:
    """What a client hands on of `payloads`, if they are a whole response."""
    client = opener(keys)
    events = [event for payload in payloads for event in client.receive(payload)]
    client.finish()
    return events


def refused(payloads: Iterable[bytes]) -> list[Head | bytes | End]:
    """What a client hands on of `payloads` before it refuses them; fails if it never does."""
    client = opener()
    events: list[Head | bytes | End] = []
    with pytest.raises(MalformedResponse):  # noqa: PT012 - what was handed on until then matters
        for payload in payloads:
            events += client.receive(payload)
        client.finish()
    return events


@given(pieces=PIECES, status=st.integers(100, 599), name=st.text(max_size=5), receipt=st.binary(max_size=20))
def test_what_is_sealed_comes_out_in_order(pieces: list[list[bytes]], status: int, name: str, receipt: bytes) -> None:
    head = Head(status=status, headers=[Header(name=name, value=name)])
    end = End(receipt=receipt, signature=receipt)
    records = [[Frame(body=piece) for piece in record] for record in pieces]
    payloads = sealed([Frame(head=head)], *records, [Frame(end=end)])
    assert opened(payloads) == [head, *(piece for record in pieces for piece in record), end]


@given(length=st.integers(0, 500), extra=st.integers(0, 500))
def test_the_length_of_a_record_is_its_padded_size(length: int, extra: int) -> None:
    frames = content(HEAD, Frame(body=bytes(length)), END)
    size = 4 + len(frames) + extra
    payload = ResponseSealer(KEYS, KEY_ID, NONCE).seal(frames, size=size, last=True)
    assert len(payload) == 16 + 32 + size + 16
    assert opened([payload])[1] == bytes(length)


@given(pieces=PIECES, data=st.data())
@settings(max_examples=150)
def test_records_in_another_order_dropped_or_repeated_are_refused(
    pieces: list[list[bytes]], data: st.DataObject
) -> None:
    payloads = response(pieces)
    numbers = data.draw(st.lists(st.integers(0, len(payloads) - 1), max_size=len(payloads) + 2))
    assume(numbers != list(range(len(payloads))))
    whole = opened(payloads)
    events = refused([payloads[i] for i in numbers])
    # Even before the refusal nothing but the true beginning was handed on.
    assert events == whole[: len(events)]


@given(pieces=st.lists(st.lists(st.binary(max_size=9), max_size=2), min_size=2, max_size=6), data=st.data())
def test_swapped_records_are_refused(pieces: list[list[bytes]], data: st.DataObject) -> None:
    payloads = response(pieces)
    order = data.draw(st.permutations(range(len(payloads))))
    assume(list(order) != list(range(len(payloads))))
    assert opened(payloads)[0] == HEAD.head
    refused([payloads[i] for i in order])


def test_a_dropped_record_is_refused_wherever_it_was() -> None:
    payloads = response([[b"a"], [b"b"], [b"c"], []])
    assert opened(payloads) == [HEAD.head, b"a", b"b", b"c", END.end]
    for i in range(len(payloads)):
        refused(payloads[:i] + payloads[i + 1 :])


def test_a_replayed_record_is_refused_wherever_it_was() -> None:
    payloads = response([[b"a"], [b"b"], [b"c"], []])
    for i in range(len(payloads)):
        for j in range(i, len(payloads)):
            refused([*payloads[: j + 1], payloads[i], *payloads[j + 1 :]])


@given(pieces=PIECES, data=st.data())
def test_a_response_that_was_cut_off_is_refused(pieces: list[list[bytes]], data: st.DataObject) -> None:
    payloads = response(pieces)
    kept = data.draw(st.integers(0, len(payloads) - 1))
    events = refused(payloads[:kept])
    assert events == opened(payloads)[: len(events)]


OTHER_EXCHANGES = {
    "another response nonce": {"nonce": b"m" * 32},
    "another recipient": {"key_id": OTHER_KEY_ID},
    "another request with the same secret": {"keys": RecordKeys(Secret(b"s" * 32), b"u" * 32)},
    "another secret": {"keys": RecordKeys(Secret(b"r" * 32), b"t" * 32)},
}


@pytest.mark.parametrize("other", OTHER_EXCHANGES.values(), ids=OTHER_EXCHANGES)
@given(data=st.data())
@settings(max_examples=30)
def test_records_of_two_exchanges_do_not_mix(other: dict[str, Any], data: st.DataObject) -> None:
    pieces = [[b"a"], [b"b"], [b"c"], []]
    first, second = response(pieces), response(pieces, **other)
    assert opened(first) == opened(second, other.get("keys", KEYS))
    choice = data.draw(st.lists(st.booleans(), min_size=len(first), max_size=len(first)))
    assume(len(set(choice)) == 2)
    refused([b if from_second else a for a, b, from_second in zip(first, second, choice, strict=True)])


def test_the_answer_to_another_request_is_refused() -> None:
    for name in ("another request with the same secret", "another secret"):
        refused(response([[b"a"], []], **OTHER_EXCHANGES[name]))


def test_the_answer_of_a_worker_that_was_not_asked_is_refused() -> None:
    payloads = response([[b"a"], []], key_id=b"x" * 16)
    with pytest.raises(MalformedResponse, match="not sealed to"):
        opened(payloads)


def test_renaming_the_worker_that_answered_is_refused() -> None:
    payloads = response([[b"a"], []], key_id=KEY_ID)
    refused([OTHER_KEY_ID + payloads[0][16:], *payloads[1:]])


def test_every_byte_of_a_response_counts() -> None:
    payloads = response([[b"a"], [b"b"], []])
    for number, payload in enumerate(payloads):
        for position in range(len(payload)):
            changed = bytearray(payload)
            changed[position] ^= 1 + position % 255
            refused([*payloads[:number], bytes(changed), *payloads[number + 1 :]])


@given(data=st.data())
def test_a_payload_of_another_length_is_refused(data: st.DataObject) -> None:
    payloads = response([[b"a"], [b"b"], []])
    number = data.draw(st.integers(0, len(payloads) - 1))
    shorter = payloads[number][: data.draw(st.integers(0, len(payloads[number]) - 1))]
    longer = payloads[number] + data.draw(st.binary(min_size=1, max_size=50))
    for changed in (shorter, longer):
        refused([*payloads[:number], changed, *payloads[number + 1 :]])


@given(payloads=st.lists(st.binary(max_size=120), max_size=4), ours=st.booleans())
def test_arbitrary_payloads_are_refused(payloads: list[bytes], ours: bool) -> None:
    if ours and payloads:
        payloads[0] = KEY_ID + payloads[0]
    assert refused(payloads) == []


@given(plaintext=st.one_of(st.binary(max_size=64), st.binary(max_size=40).map(lambda raw: pad(raw, 64))))
def test_an_arbitrary_plaintext_gives_frames_or_malformed_response(plaintext: bytes) -> None:
    payload = KEY_ID + NONCE + KEYS.cipher(KEY_ID, NONCE).encrypt(bytes(12), plaintext, b"\0")
    client = opener()
    try:
        events = client.receive(payload)
    except MalformedResponse:
        return
    assert all(isinstance(event, Head | bytes) for event in events)
    with pytest.raises(MalformedResponse):
        client.finish()


@given(frames=st.lists(st.sampled_from([HEAD, BODY, END, Frame()]), max_size=6), data=st.data())
@settings(max_examples=200)
def test_only_head_then_bodies_then_end_is_a_response(frames: list[Frame], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(frames)))
    records = data.draw(st.sampled_from([[frames], [frames[:cut], frames[cut:]]]))
    payloads = sealed(*records)
    in_order = len(frames) >= 2 and frames[0] == HEAD and frames[-1] == END and set_of_kinds(frames[1:-1]) <= {"body"}
    if in_order and records[-1]:
        assert len(opened(payloads)) == len(frames)
    else:
        refused(payloads)


def set_of_kinds(frames: Iterable[Frame]) -> set[str | None]:
    return {frame.WhichOneof("frame") for frame in frames}


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([[HEAD], [BODY]], "no end"),
        ([[HEAD], []], "no end"),
        ([[HEAD, END], []], "an end before"),
        ([[BODY], [END]], "order"),
        ([[END]], "order"),
        ([[HEAD, HEAD], [END]], "order"),
        ([[HEAD], [HEAD], [END]], "order"),
        ([[HEAD], [END, BODY]], "order"),
        ([[HEAD], [END, END]], "order"),
        ([[HEAD, Frame()], [END]], "order"),
    ],
)
def test_a_breach_of_the_order_of_frames_is_named(records: list[list[Frame]], reason: str) -> None:
    with pytest.raises(MalformedResponse, match=reason):
        opened(sealed(*records))


def test_a_stream_without_a_record_and_one_cut_off_are_told_apart() -> None:
    with pytest.raises(MalformedResponse, match="no record"):
        opened([])
    with pytest.raises(MalformedResponse, match="cut off"):
        opened(response([[b"a"], []])[:1])


@pytest.mark.parametrize("more", [b"", b"x", bytes(300)])
def test_data_after_the_last_record_is_refused(more: bytes) -> None:
    payloads = response([[b"a"], []])
    with pytest.raises(MalformedResponse, match="after the last"):
        opened([*payloads, more])


def test_empty_records_are_allowed_between_head_and_end() -> None:
    assert opened(sealed([HEAD], [], [BODY], [], [END])) == [HEAD.head, b"body", END.end]


def test_an_empty_record_may_come_before_the_head() -> None:
    # Constant mode sends records before the engine has answered.
    assert opened(sealed([], [], [HEAD, END])) == [HEAD.head, END.end]


def full_record(index: int, size: int) -> bytes:
    """Record `index` with a plaintext of `size` bytes."""
    frames = content(HEAD) if index == 0 else content(BODY)
    preamble = b"" if index else KEY_ID + NONCE
    return preamble + KEYS.cipher(KEY_ID, NONCE).encrypt(index.to_bytes(12, "big"), pad(frames, size), b"\0")


def test_a_record_of_1_mib_is_accepted_and_of_one_byte_more_refused() -> None:
    client = opener()
    assert client.receive(full_record(0, MAX_RECORD_PLAINTEXT_BYTES)) == [HEAD.head]
    assert client.receive(full_record(1, MAX_RECORD_PLAINTEXT_BYTES)) == [b"body"]
    with pytest.raises(MalformedResponse, match="too large"):
        opener().receive(full_record(0, MAX_RECORD_PLAINTEXT_BYTES + 1))


def test_a_later_record_above_1_mib_is_refused() -> None:
    client = opener()
    client.receive(full_record(0, 64))
    with pytest.raises(MalformedResponse):
        client.receive(full_record(1, MAX_RECORD_PLAINTEXT_BYTES + 1))


def test_the_sealer_makes_no_record_above_1_mib() -> None:
    sealer = ResponseSealer(KEYS, KEY_ID, NONCE)
    with pytest.raises(ValueError, match="at most"):
        sealer.seal(b"", size=MAX_RECORD_PLAINTEXT_BYTES + 1, last=False)
    with pytest.raises(ValueError, match="do not fit"):
        sealer.seal(bytes(61), size=64, last=False)
    # A refused call used up nothing: the response is whole.
    assert opened([sealer.seal(content(HEAD, END), size=64, last=True)]) == [HEAD.head, END.end]


def test_the_sealer_makes_nothing_after_the_last_record() -> None:
    sealer = ResponseSealer(KEYS, KEY_ID, NONCE)
    sealer.seal(content(HEAD, END), size=64, last=True)
    with pytest.raises(ValueError, match="already sealed"):
        sealer.seal(b"", size=64, last=False)


@pytest.mark.parametrize("length", [0, 16, 31, 33])
def test_a_response_nonce_has_32_bytes(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        ResponseSealer(KEYS, KEY_ID, bytes(length))


def test_no_two_records_of_a_response_are_encrypted_alike() -> None:
    payloads = sealed([HEAD], [BODY], [BODY], [BODY], [END])
    assert len({payload[-256:] for payload in payloads}) == len(payloads)


@pytest.mark.parametrize("records", [[[HEAD, END], []], [[HEAD, END, BODY]], [[HEAD, END, END]]])
def test_finish_does_not_pass_after_a_refusal(records: list[list[Frame]]) -> None:
    client = opener()
    with pytest.raises(MalformedResponse):
        client.receive(sealed(*records)[0])
    with pytest.raises(MalformedResponse):
        client.finish()


@pytest.mark.parametrize("good_records", [0, 1])
def test_a_refusal_ends_the_exchange(good_records: int) -> None:
    payloads = response([[b"a"], []])
    client = opener()
    for payload in payloads[:good_records]:
        client.receive(payload)
    with pytest.raises(MalformedResponse):
        client.receive(b"x" * 100)
    with pytest.raises(MalformedResponse):
        client.receive(payloads[good_records])


def test_each_response_opener_of_an_exchange_starts_afresh() -> None:
    payloads = response([[b"a"], []])
    assert opened(payloads) == opened(payloads)


def test_record_keys_belong_to_one_key_id_nonce_and_transcript() -> None:
    changed = [
        KEYS.cipher(OTHER_KEY_ID, NONCE),
        KEYS.cipher(KEY_ID, b"m" * 32),
        dataclasses.replace(KEYS, transcript_hash=b"u" * 32).cipher(KEY_ID, NONCE),
        dataclasses.replace(KEYS, request_secret=Secret(b"r" * 32)).cipher(KEY_ID, NONCE),
    ]
    texts = [cipher.encrypt(bytes(12), b"same", b"") for cipher in [KEYS.cipher(KEY_ID, NONCE), *changed]]
    assert len(set(texts)) == len(texts)
