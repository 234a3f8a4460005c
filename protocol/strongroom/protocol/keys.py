"""Identity keys: the suite, the public half that clients seal to, the private half that workers hold.

Source: docs/protocol.md, section 1; RFC 9180 (HPKE, base mode, single shot); draft-ietf-hpke-pq for the KEM.
"""

import dataclasses
import hashlib
from collections.abc import Callable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    MLKEM768X25519PublicKey,
    Suite,
)

from strongroom.protocol.errors import MalformedKey, RequestRefused, WireCode
from strongroom.protocol.secret import Secret

RandomSource = Callable[[int], bytes]
"""Gives as many uniformly random bytes as it is asked for; `os.urandom` outside tests."""

KEY_ID_BYTES = 16
SUITE_NAME = "MLKEM768-X25519/HKDF-SHA256/AES-256-GCM"
SUITE_ID = bytes.fromhex("647a00010002")

_MLKEM_PUBLIC_BYTES = 1184
_MLKEM_SEED_BYTES = 64
_X25519_BYTES = 32
_SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def key_id(public_key: bytes) -> bytes:
    """The 16-byte name of a public key of the mandatory suite."""
    return hashlib.sha256(b"strongroom/1 key" + SUITE_ID + public_key).digest()[:KEY_ID_BYTES]


def _envelope_info(identifier: bytes) -> bytes:
    return b"strongroom/1 envelope" + identifier


@dataclasses.dataclass(frozen=True)
class PublicIdentity:
    """An attested public key: ML-KEM-768 encapsulation key (1,184 bytes) || X25519 public key (32 bytes).

    Raises `MalformedKey` when made from bytes that the library does not take for such keys.
    """

    public_key: bytes
    key_id: bytes = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        if len(self.public_key) != _MLKEM_PUBLIC_BYTES + _X25519_BYTES:
            raise MalformedKey(f"a public key of {SUITE_NAME} has 1216 bytes, not {len(self.public_key)}")
        object.__setattr__(self, "key_id", key_id(self.public_key))
        self._recipient()

    def _recipient(self) -> MLKEM768X25519PublicKey:
        try:
            return MLKEM768X25519PublicKey(
                MLKEM768PublicKey.from_public_bytes(self.public_key[:_MLKEM_PUBLIC_BYTES]),
                X25519PublicKey.from_public_bytes(self.public_key[_MLKEM_PUBLIC_BYTES:]),
            )
        except ValueError as error:
            raise MalformedKey(f"the library refuses this public key of {SUITE_NAME}") from error

    def seal(self, secret: bytes) -> bytes:
        """HPKE-seal `secret` to this key; raises `MalformedKey` for a point that the library refuses at use.

        The KEM draws its own randomness inside the library.
        """
        try:
            return _SUITE.encrypt(secret, self._recipient(), info=_envelope_info(self.key_id))
        except ValueError as error:
            raise MalformedKey(f"the library refuses this public key of {SUITE_NAME}") from error


class IdentityKey:
    """A private key of a worker: ML-KEM seed (64 bytes) || X25519 private key (32 bytes).

    It lives in the memory of the launcher and the front ends only. Raises `MalformedKey` for other lengths.
    """

    SECRET_BYTES = _MLKEM_SEED_BYTES + _X25519_BYTES

    def __init__(self, secret: Secret) -> None:
        if len(secret.expose()) != self.SECRET_BYTES:
            raise MalformedKey(f"a private key of {SUITE_NAME} has {self.SECRET_BYTES} bytes")
        mlkem = MLKEM768PrivateKey.from_seed_bytes(secret.expose()[:_MLKEM_SEED_BYTES])
        x25519 = X25519PrivateKey.from_private_bytes(secret.expose()[_MLKEM_SEED_BYTES:])
        # The composite class has no serialisation, so the components are kept for hand-over.
        self.secret = secret
        self._composite = MLKEM768X25519PrivateKey(mlkem, x25519)
        self.public = PublicIdentity(mlkem.public_key().public_bytes_raw() + x25519.public_key().public_bytes_raw())

    @classmethod
    def generate(cls, random: RandomSource) -> "IdentityKey":
        """A fresh key; every 96-byte string is a valid secret, so `random` is all the entropy there is."""
        return cls(Secret(random(cls.SECRET_BYTES)))

    def open(self, sealed: bytes) -> Secret:
        """Open one envelope; raises `RequestRefused` (malformed) for whatever does not open."""
        try:
            return Secret(_SUITE.decrypt(sealed, self._composite, info=_envelope_info(self.public.key_id)))
        except (InvalidTag, ValueError) as error:
            raise RequestRefused(WireCode.MALFORMED) from error

    def __repr__(self) -> str:
        return "IdentityKey(redacted)"
