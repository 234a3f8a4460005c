"""HKDF-SHA256 as every section of the protocol uses it (RFC 5869)."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF


def hkdf(key: bytes, *, info: bytes, length: int = 32, salt: bytes | None = None) -> bytes:
    """Derive `length` bytes from `key`; no `salt` means the empty one."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)
