"""Receipts: only the key of the claims can have signed one, and only this text (section 6)."""

import hashlib
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol import canonical, receipt
from strongroom.protocol.errors import BadReceipt

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
EXAMPLE = {"boot_id": "00" * 16, "scope_tag": "t", "blocks": 3, "bytes": 4096, "tiers": ["gpu"], "counter": 1}


def signed(raw: bytes) -> bytes:
    """A signature of `KEY` over any bytes as if they were a receipt."""
    return KEY.sign(b"strongroom/1 receipt" + hashlib.sha256(PUBLIC).digest() + raw)


@given(content=st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5), max_size=6))
def test_a_receipt_verifies_and_comes_back(content: dict[str, Any]) -> None:
    raw, signature = receipt.sign(KEY, content)
    assert raw == canonical.encode(content)
    assert receipt.verify(PUBLIC, raw, signature) == content


@given(data=st.data())
def test_a_receipt_with_a_changed_byte_is_refused(data: st.DataObject) -> None:
    parts = [bytearray(PUBLIC), *map(bytearray, receipt.sign(KEY, EXAMPLE))]
    part = parts[data.draw(st.integers(0, 2))]
    part[data.draw(st.integers(0, len(part) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(BadReceipt):
        receipt.verify(*map(bytes, parts))


def test_a_receipt_of_another_boot_is_refused() -> None:
    raw, signature = receipt.sign(OTHER, EXAMPLE)
    assert receipt.verify(OTHER.public_key().public_bytes_raw(), raw, signature) == EXAMPLE
    with pytest.raises(BadReceipt):
        receipt.verify(PUBLIC, raw, signature)


def test_a_signature_names_the_key_that_it_is_for() -> None:
    raw = canonical.encode(EXAMPLE)
    other = hashlib.sha256(OTHER.public_key().public_bytes_raw()).digest()
    with pytest.raises(BadReceipt):
        receipt.verify(PUBLIC, raw, KEY.sign(b"strongroom/1 receipt" + other + raw))


@pytest.mark.parametrize("prefix", [b"", b"strongroom/1 receipt", b"strongroom/1 simulated"])
def test_a_signature_made_for_another_purpose_is_refused(prefix: bytes) -> None:
    raw = canonical.encode(EXAMPLE)
    with pytest.raises(BadReceipt):
        receipt.verify(PUBLIC, raw, KEY.sign(prefix + raw))


@pytest.mark.parametrize("raw", [b'{"a": 1}', b'{"a":1,"a":1}', b"[]", b"", b"\xff", b'{"b":1,"a":1}'])
def test_a_signed_text_that_is_not_canonical_is_refused(raw: bytes) -> None:
    assert receipt.verify(PUBLIC, b'{"a":1}', signed(b'{"a":1}')) == {"a": 1}
    with pytest.raises(BadReceipt):
        receipt.verify(PUBLIC, raw, signed(raw))


@given(public=st.binary(max_size=40), raw=st.binary(max_size=40), signature=st.binary(max_size=70))
def test_arbitrary_bytes_are_a_bad_receipt(public: bytes, raw: bytes, signature: bytes) -> None:
    with pytest.raises(BadReceipt):
        receipt.verify(public, raw, signature)
