"""Identity keys: who can open what, and that bad keys are refused with our own errors (section 1)."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.errors import MalformedKey, RequestRefused, WireCode
from strongroom.protocol.keys import KEY_ID_BYTES, IdentityKey, PublicIdentity, key_id
from strongroom.protocol.secret import Secret

MLKEM_BYTES, X25519_BYTES = 1184, 32


@given(secret=st.binary(max_size=100))
def test_what_is_sealed_to_a_key_opens_with_it(worker_key: IdentityKey, secret: bytes) -> None:
    assert worker_key.open(worker_key.public.seal(secret)).expose() == secret


def test_an_envelope_does_not_open_with_another_key(worker_key: IdentityKey, next_key: IdentityKey) -> None:
    sealed = worker_key.public.seal(b"secret")
    with pytest.raises(RequestRefused) as refused:
        next_key.open(sealed)
    assert refused.value.code is WireCode.MALFORMED


def test_an_envelope_is_bound_to_the_key_id(worker_key: IdentityKey) -> None:
    # The same key pair under another id, as a host could announce it: the info string differs.
    renamed = PublicIdentity(worker_key.public.public_key)
    object.__setattr__(renamed, "key_id", bytes(KEY_ID_BYTES))
    with pytest.raises(RequestRefused):
        worker_key.open(renamed.seal(b"secret"))


def test_two_envelopes_for_one_secret_differ(worker_key: IdentityKey) -> None:
    assert worker_key.public.seal(b"secret") != worker_key.public.seal(b"secret")


@given(sealed=st.binary(max_size=2000))
def test_bytes_that_are_no_envelope_are_refused_as_malformed(worker_key: IdentityKey, sealed: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        worker_key.open(sealed)
    assert refused.value.code is WireCode.MALFORMED


@pytest.mark.parametrize("length", [0, 1, 1087, 1088, 1119, 1120, 1135, 1136, 1167, 1169, 70000])
def test_an_envelope_of_another_length_is_refused_as_malformed(worker_key: IdentityKey, length: int) -> None:
    with pytest.raises(RequestRefused) as refused:
        worker_key.open(bytes(length))
    assert refused.value.code is WireCode.MALFORMED


@given(data=st.data())
def test_an_envelope_with_a_changed_byte_does_not_open(worker_key: IdentityKey, data: st.DataObject) -> None:
    sealed = bytearray(worker_key.public.seal(bytes(32)))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RequestRefused) as refused:
        worker_key.open(bytes(sealed))
    assert refused.value.code is WireCode.MALFORMED


@given(raw=st.binary(max_size=2500).filter(lambda raw: len(raw) != MLKEM_BYTES + X25519_BYTES))
def test_a_public_key_of_another_length_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedKey):
        PublicIdentity(raw)


@given(raw=st.binary(max_size=200).filter(lambda raw: len(raw) != IdentityKey.SECRET_BYTES))
def test_a_private_key_of_another_length_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedKey):
        IdentityKey(Secret(raw))


@given(seed=st.binary(min_size=8, max_size=8), fill=st.sampled_from([0, 255, None]))
def test_sealing_to_arbitrary_bytes_of_the_right_length_seals_or_is_refused(seed: bytes, fill: int | None) -> None:
    length = MLKEM_BYTES + X25519_BYTES
    raw = hashlib.shake_256(seed).digest(length) if fill is None else bytes([fill]) * length
    try:
        sealed = PublicIdentity(raw).seal(bytes(32))
    except MalformedKey:
        return
    assert len(sealed) == 1088 + 32 + 32 + 16


def test_a_public_key_with_a_coefficient_out_of_range_is_refused(worker_key: IdentityKey) -> None:
    raw = worker_key.public.public_key
    with pytest.raises(MalformedKey):
        PublicIdentity(b"\xff\xff" + raw[2:]).seal(bytes(32))


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_a_public_key_with_a_point_of_low_order_is_refused(worker_key: IdentityKey, point: bytes) -> None:
    with pytest.raises(MalformedKey):
        PublicIdentity(worker_key.public.public_key[:MLKEM_BYTES] + point).seal(bytes(32))


@given(position=st.integers(0, MLKEM_BYTES + X25519_BYTES - 1), mask=st.integers(1, 255))
def test_the_key_id_depends_on_every_byte_of_the_public_key(worker_key: IdentityKey, position: int, mask: int) -> None:
    raw = bytearray(worker_key.public.public_key)
    raw[position] ^= mask
    assert key_id(bytes(raw)) != worker_key.public.key_id


def test_a_generated_key_takes_all_its_entropy_from_the_source_it_is_given() -> None:
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    first, second = IdentityKey.generate(random), IdentityKey.generate(random)
    assert asked == [IdentityKey.SECRET_BYTES] * 2
    assert first.public == second.public


def test_a_key_that_was_handed_over_opens_what_the_first_would(worker_key: IdentityKey) -> None:
    handed_over = IdentityKey(Secret(worker_key.secret.expose()))
    assert handed_over.public == worker_key.public
    assert handed_over.open(worker_key.public.seal(b"secret")).expose() == b"secret"
