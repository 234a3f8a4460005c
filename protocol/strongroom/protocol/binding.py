"""What the evidence commits to (docs/protocol.md, section 2)."""

import hashlib
from collections.abc import Iterable

from strongroom.protocol.errors import MalformedClaims
from strongroom.protocol.limits import MAX_EVIDENCE_TYPE_CHARACTERS


def report_data(root: bytes, claims: bytes) -> bytes:
    """The 64 bytes that the TEE signs: they bind the verifiers' nonces and the claims, byte for byte."""
    return hashlib.sha512(b"strongroom/1 report" + root + hashlib.sha512(claims).digest()).digest()


def device_nonce(root: bytes, key_ids: Iterable[bytes]) -> bytes:
    """The 32 bytes that each device signs: they bind the nonces and every key, in the order of the claims."""
    return hashlib.sha256(b"strongroom/1 device" + root + b"".join(key_ids)).digest()


def evidence_digest(kind: str, report: bytes) -> str:
    """The value of `claims.devices[].evidence` for a device's report; raises `MalformedClaims` for a bad type."""
    if not kind.isascii() or not 0 < len(kind) <= MAX_EVIDENCE_TYPE_CHARACTERS:
        raise MalformedClaims("an evidence type is a short ASCII name")
    name = kind.encode("ascii")
    return "sha256:" + hashlib.sha256(len(name).to_bytes(2, "big") + name + report).hexdigest()
