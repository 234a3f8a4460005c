"""One encoding for one value: RFC 8785 and unpadded base64url, over arbitrary input."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.canonical import NotCanonical, base64url, decode, encode, from_base64url


def has_one_form(number: float) -> bool:
    """False for what ECMAScript prints as an integer that is no safe one: `decode` refuses those."""
    return not 2**53 <= abs(number) < 1e21


FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(has_one_form)
SCALARS = st.none() | st.booleans() | st.integers(1 - 2**53, 2**53 - 1) | FLOATS | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=12
)
OBJECTS = st.dictionaries(st.text(max_size=8), VALUES, max_size=5)


@given(value=OBJECTS)
def test_an_object_comes_back_from_its_canonical_form(value: dict[str, Any]) -> None:
    raw = encode(value)
    assert decode(raw) == value
    assert encode(decode(raw)) == raw


@given(value=OBJECTS, indent=st.sampled_from([None, 0, 2]), ascii_only=st.booleans())
def test_any_other_encoding_of_the_same_object_is_refused(
    value: dict[str, Any], indent: int | None, ascii_only: bool
) -> None:
    raw = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    if raw == encode(value):
        assert decode(raw) == value
    else:
        with pytest.raises(NotCanonical):
            decode(raw)


@given(raw=st.binary(max_size=60))
def test_arbitrary_bytes_are_canonical_or_refused(raw: bytes) -> None:
    try:
        value = decode(raw)
    except NotCanonical:
        return
    assert encode(value) == raw


@given(value=OBJECTS.filter(bool), data=st.data())
def test_a_changed_byte_gives_another_object_or_is_refused(value: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(encode(value))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        changed = decode(bytes(raw))
    except NotCanonical:
        return
    assert encode(changed) == raw


@given(value=VALUES.filter(lambda value: not isinstance(value, dict)))
def test_a_value_that_is_no_object_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        decode(encode(value))


@pytest.mark.parametrize(
    "raw",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":-' + b"9" * 400 + b".5}",
        b'{"a":1e999999999}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":NaN}',
        b'{"a":"\\ud800"}',
        b'{"\\ud800":1}',
        b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\x00"}',
    ],
    ids=range(13),
)
def test_input_made_to_break_a_parser_is_refused_as_not_canonical(raw: bytes) -> None:
    with pytest.raises(NotCanonical):
        decode(raw)


@pytest.mark.parametrize("raw", [b'{"a":{"b":1,"b":1}}', b'{"a":[{"b":1,"b":2}]}', b'{"":1,"":1}'])
def test_a_duplicate_member_is_refused_at_every_depth(raw: bytes) -> None:
    with pytest.raises(NotCanonical, match="twice"):
        decode(raw)


@pytest.mark.parametrize(
    "raw", [b'{"CANARY":1, "a":2}', b'{"CANARY":1,"CANARY":1}', b'{"a":"CANARY\xff"}', b'{"a":CANARY}', b'"CANARY"']
)
def test_the_message_of_a_refusal_quotes_nothing(raw: bytes) -> None:
    with pytest.raises(NotCanonical) as refused:
        decode(raw)
    assert "CANARY" not in str(refused.value)


@given(data=st.binary(max_size=100))
def test_base64url_is_unpadded_and_comes_back(data: bytes) -> None:
    text = base64url(data)
    assert not set(text) & set("+/=")
    assert from_base64url(text) == data
