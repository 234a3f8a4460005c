"""Cache salts and everything derived from them (docs/protocol.md, section 6)."""

import hashlib
import hmac
import re

from strongroom.protocol.canonical import base64url, from_base64url
from strongroom.protocol.derive import hkdf
from strongroom.protocol.errors import WeakSalt
from strongroom.protocol.keys import RandomSource
from strongroom.protocol.limits import MAX_SALT_CHARACTERS, MIN_SALT_BYTES, MIN_SALT_CHARACTERS
from strongroom.protocol.secret import Secret

NAMESPACE_PREFIX = "sr1."

# 32 uniformly random bytes have fewer than 16 distinct values with a probability below 2^-54.
_MIN_DISTINCT_BYTES = 16
_HEX = re.compile(r"[0-9a-fA-F]+", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}|[A-Za-z0-9_-]+={0,2}", re.ASCII)
_HOW = "make one with: openssl rand -base64 32"


class Namespace(Secret):
    """What the engine gets instead of the client's salt. Key material: never logged, stored or compared in public."""

    def text(self) -> str:
        """The string that becomes vLLM's `cache_salt`."""
        return self.expose().decode("ascii")


def new_cache_salt(random: RandomSource) -> str:
    """A fresh salt of 256 bits, in base64url."""
    return base64url(random(MIN_SALT_BYTES))


def check_cache_salt(salt: object) -> str:
    """Give back `salt` if it carries 256 bits, as far as one can see; raise `WeakSalt` otherwise.

    A string of hexadecimal digits alone is judged as hexadecimal: read as base64 it would pass with 4 bits a
    character.
    """
    if not isinstance(salt, str):
        raise WeakSalt(f"cache_salt must be a string of 32 random bytes in base64url, base64 or hex; {_HOW}")
    if not MIN_SALT_CHARACTERS <= len(salt) <= MAX_SALT_CHARACTERS:
        raise WeakSalt(
            f"cache_salt must have {MIN_SALT_CHARACTERS} to {MAX_SALT_CHARACTERS} characters, not {len(salt)}; {_HOW}"
        )
    decoded = _decode(salt)
    if len(decoded) < MIN_SALT_BYTES:
        raise WeakSalt(f"cache_salt must decode to at least {MIN_SALT_BYTES} bytes, not {len(decoded)}; {_HOW}")
    # A string that occurs in its own double before the end is a repeated block.
    if len(set(decoded)) < _MIN_DISTINCT_BYTES or (decoded + decoded).find(decoded, 1) < len(decoded):
        raise WeakSalt(f"cache_salt is repetitive, not random; {_HOW}")
    return salt


def _decode(salt: str) -> bytes:
    try:
        if _HEX.fullmatch(salt):
            return bytes.fromhex(salt)
        if _BASE64.fullmatch(salt):
            return from_base64url(salt.rstrip("=").replace("+", "-").replace("/", "_"))
    except ValueError:
        pass
    raise WeakSalt(f"cache_salt is neither hex nor base64 nor base64url; {_HOW}")


def namespace(salt: str, model_digest: bytes) -> Namespace:
    """The namespace of `salt` for a model, whose digest is 32 bytes. The salt is used as sent, undecoded."""
    derived = hkdf(salt.encode("utf-8"), info=b"strongroom/1 namespace" + model_digest)
    return Namespace((NAMESPACE_PREFIX + base64url(derived)).encode("ascii"))


def affinity(salt: str, epoch: int) -> bytes:
    """The 32-byte tag by which routers may group requests of one scope during one epoch."""
    key = hkdf(salt.encode("utf-8"), info=b"strongroom/1 affinity")
    return hmac.digest(key, epoch.to_bytes(8, "big"), "sha256")


def chunk_key(scope: Namespace, random: bytes, chunk_aad: bytes) -> Secret:
    """The AES-256-GCM key of one chunk in a tier; `random` is 32 fresh bytes, so a key encrypts once, ever."""
    info = b"strongroom/1 chunk" + hashlib.sha256(chunk_aad).digest()
    return Secret(hkdf(scope.expose(), salt=random, info=info))


def name_key(scope: Namespace) -> Secret:
    """The HMAC-SHA256 key of the file names of one scope."""
    return Secret(hkdf(scope.expose(), info=b"strongroom/1 name"))
