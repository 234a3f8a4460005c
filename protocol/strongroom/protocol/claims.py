"""What a worker claims to run, as the TEE's evidence commits to it (docs/protocol.md, section 2).

Every member is required and others are refused, so that a verifier never overlooks one; `info` alone is free.
"""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from strongroom.protocol import canonical
from strongroom.protocol.canonical import base64url, from_base64url
from strongroom.protocol.errors import BadProfile, MalformedClaims, MalformedKey
from strongroom.protocol.keys import SUITE_NAME, PublicIdentity
from strongroom.protocol.limits import MAX_CLAIMS_BYTES
from strongroom.protocol.padding import StreamShape


def _check_base64url(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]+", text, re.ASCII) or base64url(from_base64url(text)) != text:
        raise ValueError("not unpadded base64url")
    return text


Base64Url = Annotated[str, AfterValidator(_check_base64url)]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
# Printed on terminals: no control characters.
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")]
Seconds = Annotated[int, Field(ge=0, lt=2**53)]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Key(_Closed):
    """An identity key, current or next."""

    key_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    suite: Text
    public_key: Base64Url
    not_before: Seconds
    not_after: Seconds

    def identity(self) -> PublicIdentity:
        """The key to seal to; raises `MalformedKey` unless suite, length and `key_id` fit together."""
        if self.suite != SUITE_NAME:
            raise MalformedKey(f"suite {self.suite!r} is not {SUITE_NAME}")
        identity = PublicIdentity(from_base64url(self.public_key))
        if identity.key_id.hex() != self.key_id:
            raise MalformedKey("key_id is not the digest of suite and public key")
        return identity


class SigningKey(_Closed):
    """The key of one boot that signs receipts."""

    algorithm: Literal["Ed25519"]
    public_key: Base64Url


class ModelSignature(_Closed):
    """Who signed the model, as the launcher verified it."""

    method: Text
    identity: Text


class Model(_Closed):
    """The weights and tokenizer that are served."""

    name: Text
    digest: Digest
    signature: ModelSignature | None


class Engine(_Closed):
    """The inference engine: the published list of arguments that matter, and a digest over all of them."""

    name: Text
    version: Text
    arguments: dict[str, Any]
    digest: Digest


class Tier(_Closed):
    """One place where KV blocks live."""

    medium: Literal["gpu", "cpu", "disk"]
    bytes: Annotated[int, Field(ge=0, lt=2**53)]
    encryption: Literal["AES-256-GCM"] | None
    key: Literal["salt"] | None


class Cache(_Closed):
    """How the prefix cache is kept apart."""

    salt: Literal["required"]
    hash: Literal["sha256"]
    tiers: list[Tier]


class Stream(_Closed):
    """The least shape that every response gets."""

    padding: Text
    tick_ms: int

    @model_validator(mode="after")
    def _is_a_shape(self) -> "Stream":
        try:
            self.shape()
        except BadProfile as error:
            raise ValueError(str(error)) from error
        return self

    def shape(self) -> StreamShape:
        """The two members as one value."""
        return StreamShape.parse(self.padding, self.tick_ms)


class Device(_Closed):
    """An accelerator, tied to its evidence by digest."""

    type: Text
    index: Annotated[int, Field(ge=0, lt=2**16)]
    architecture: Text
    evidence: Digest


class Tee(_Closed):
    """What kind of TEE signs the report."""

    type: Literal["sev-snp", "tdx", "azure-vtpm", "simulated"]


class Launcher(_Closed):
    """The release that runs, and the configuration it was given."""

    version: Text
    config: Digest


class Claims(_Closed):
    """All of it. `encode` gives the bytes that evidence commits to, `parse` reads them back."""

    version: Literal[1]
    boot_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    keys: Annotated[list[Key], Field(min_length=1, max_length=8)]
    signing_key: SigningKey
    model: Model
    engine: Engine
    cache: Cache
    stream: Stream
    devices: list[Device]
    tee: Tee
    launcher: Launcher
    info: dict[str, Any]

    def encode(self) -> bytes:
        """RFC 8785 JSON."""
        return canonical.encode(self.model_dump(mode="json"))


def _encode_again(claims: Claims) -> bytes:
    try:
        return claims.encode()
    except (ValueError, RecursionError) as error:
        raise MalformedClaims("members are nested too deeply") from error


def parse(raw: bytes) -> Claims:
    """Read claims as received; raises `MalformedClaims` unless canonical and of exactly the shape above."""
    if len(raw) > MAX_CLAIMS_BYTES:
        raise MalformedClaims(f"claims exceed {MAX_CLAIMS_BYTES} bytes")
    try:
        claims = Claims.model_validate(canonical.decode(raw))
        if _encode_again(claims) != raw:
            # The model read something as what it is not, such as true as 1.
            raise MalformedClaims("a member has another type than it should")
        return claims
    except canonical.NotCanonical as error:
        raise MalformedClaims(str(error)) from error
    except ValidationError as error:
        where = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'claims'}: {e['msg']}" for e in error.errors()[:5])
        raise MalformedClaims(where) from error
