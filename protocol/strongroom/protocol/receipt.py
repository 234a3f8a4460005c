"""Receipts that a scope was purged, signed by a key that the claims name (docs/protocol.md, section 6)."""

import hashlib
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from strongroom.protocol import canonical
from strongroom.protocol.errors import BadReceipt


def _signed(public_key: bytes, receipt: bytes) -> bytes:
    return b"strongroom/1 receipt" + hashlib.sha256(public_key).digest() + receipt


def sign(key: Ed25519PrivateKey, receipt: dict[str, Any]) -> tuple[bytes, bytes]:
    """The receipt in canonical JSON, and its 64-byte signature."""
    raw = canonical.encode(receipt)
    return raw, key.sign(_signed(key.public_key().public_bytes_raw(), raw))


def verify(public_key: bytes, receipt: bytes, signature: bytes) -> dict[str, Any]:
    """The receipt's content; raises `BadReceipt` if it was not signed by this key or is not canonical."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _signed(public_key, receipt))
        return canonical.decode(receipt)
    except (InvalidSignature, ValueError) as error:
        raise BadReceipt("the receipt is not signed by this key") from error
