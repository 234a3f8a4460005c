"""Salts that are strong enough, and what is derived from them (section 6)."""

import base64
import string

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from strongroom.protocol import cache
from strongroom.protocol.cache import Namespace, check_cache_salt
from strongroom.protocol.errors import WeakSalt

MODEL = bytes(range(32))
RANDOM = st.binary(min_size=32, max_size=64).filter(lambda raw: len(set(raw)) >= 16)
SALTS = st.text(string.ascii_letters + string.digits, min_size=43, max_size=60)


def encodings(raw: bytes) -> list[str]:
    standard = base64.b64encode(raw).decode()
    url = base64.urlsafe_b64encode(raw).decode()
    return [raw.hex(), raw.hex().upper(), standard, standard.rstrip("="), url.rstrip("=")]


@given(raw=RANDOM)
def test_32_bytes_or_more_are_accepted_in_each_encoding(raw: bytes) -> None:
    for salt in encodings(raw):
        assert check_cache_salt(salt) == salt


@given(raw=st.binary(min_size=22, max_size=31))
def test_fewer_than_32_bytes_are_refused_in_each_encoding(raw: bytes) -> None:
    for salt in encodings(raw):
        with pytest.raises(WeakSalt):
            check_cache_salt(salt)


@given(block=st.binary(min_size=1, max_size=15), times=st.integers(1, 32))
def test_a_short_block_repeated_is_refused(block: bytes, times: int) -> None:
    raw = (block * 64)[: max(32, len(block) * times)][:64]
    for salt in encodings(raw):
        with pytest.raises(WeakSalt):
            check_cache_salt(salt)


def test_a_block_of_16_bytes_repeated_is_refused() -> None:
    with pytest.raises(WeakSalt):
        check_cache_salt("00112233445566778899aabbccddeeff" * 2)


@given(salt=st.one_of(st.text(max_size=140), st.text(string.hexdigits + "-_+/= \n", min_size=40, max_size=130)))
@example("\u0660" * 64)
@example("\ud800" * 64)
@example("0" * 63)
@example("=" * 43)
def test_arbitrary_text_is_a_salt_or_weak(salt: str) -> None:
    try:
        assert check_cache_salt(salt) == salt
    except WeakSalt:
        return
    assert 43 <= len(salt) <= 128
    assert salt.isascii()


@pytest.mark.parametrize("salt", [None, 5, b"x" * 64, ["x" * 64], {"a": 1}, True, 1.5])
def test_a_salt_that_is_no_string_is_refused(salt: object) -> None:
    with pytest.raises(WeakSalt):
        check_cache_salt(salt)


@pytest.mark.parametrize(
    "salt",
    ["CANARY", "CANARY" * 30, "CANARY " * 8, "CANARY" * 8, "CANARY+-" * 6, "CA" * 32, "CANARY\ud800" * 7],
)
def test_a_refusal_does_not_quote_the_salt(salt: str) -> None:
    with pytest.raises(WeakSalt) as refused:
        check_cache_salt(salt)
    assert "CANARY" not in str(refused.value)
    assert "CACA" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None


def test_a_new_salt_is_32_random_bytes_and_accepted() -> None:
    salt = cache.new_cache_salt(lambda count: bytes(range(count)))
    assert base64.urlsafe_b64decode(salt + "=") == bytes(range(32))
    assert check_cache_salt(salt) == salt


@given(one=SALTS, other=SALTS)
def test_two_salts_never_share_a_namespace(one: str, other: str) -> None:
    assume(one != other)
    assert cache.namespace(one, MODEL).text() != cache.namespace(other, MODEL).text()


@given(salt=SALTS)
def test_a_namespace_has_its_own_alphabet_and_one_length(salt: str) -> None:
    text = cache.namespace(salt, MODEL).text()
    assert text.startswith("sr1.")
    assert len(text) == 4 + 43
    assert set(text[4:]) <= set(string.ascii_letters + string.digits + "-_")
    assert text == cache.namespace(salt, MODEL).text()


def test_the_salt_counts_as_sent_not_as_decoded() -> None:
    texts = {cache.namespace(salt, MODEL).text() for salt in encodings(bytes(range(100, 132)))}
    assert len(texts) == len(set(encodings(bytes(range(100, 132)))))


@given(salt=SALTS, bit=st.integers(0, 255))
def test_one_salt_has_another_namespace_for_another_model(salt: str, bit: int) -> None:
    other = (int.from_bytes(MODEL, "big") ^ 1 << bit).to_bytes(32, "big")
    assert cache.namespace(salt, MODEL).text() != cache.namespace(salt, other).text()


@given(salt=SALTS)
def test_what_is_derived_for_one_use_is_of_no_use_for_another(salt: str) -> None:
    scope = cache.namespace(salt, MODEL)
    derived = [
        scope.expose(),
        cache.affinity(salt, 0),
        cache.name_key(scope).expose(),
        cache.chunk_key(scope, bytes(32), b"").expose(),
    ]
    assert len(set(derived)) == len(derived)
    assert {len(value) for value in derived[1:]} == {32}


@given(salt=SALTS, one=st.integers(0, 2**64 - 1), other=st.integers(0, 2**64 - 1))
def test_an_affinity_tag_is_stable_in_an_epoch_and_changes_with_it(salt: str, one: int, other: int) -> None:
    assert (cache.affinity(salt, one) == cache.affinity(salt, other)) == (one == other)


CHUNKS = st.tuples(st.binary(min_size=32, max_size=32), st.binary(max_size=20))


@given(one=CHUNKS, other=CHUNKS)
def test_chunks_share_a_key_only_if_random_bytes_and_aad_are_the_same(
    one: tuple[bytes, bytes], other: tuple[bytes, bytes]
) -> None:
    scope = Namespace(b"sr1.scope")
    same = cache.chunk_key(scope, *one).expose() == cache.chunk_key(scope, *other).expose()
    assert same == (one == other)


def test_scopes_share_neither_chunk_keys_nor_file_names() -> None:
    one, other = Namespace(b"sr1.one"), Namespace(b"sr1.other")
    assert cache.chunk_key(one, bytes(32), b"").expose() != cache.chunk_key(other, bytes(32), b"").expose()
    assert cache.name_key(one).expose() != cache.name_key(other).expose()
