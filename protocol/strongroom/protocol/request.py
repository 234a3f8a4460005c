"""Sealed requests, both sides: no I/O, randomness is an argument (docs/protocol.md, section 3).

Client:

    exchange = seal(identities, request, random=os.urandom)
    send(exchange.sealed)                     # then feed the records to exchange.response()

Worker, in this order and in no other; the types do not allow one:

    pending = RequestOpener(keys, retired).open(raw)        # envelope and ciphertext have opened
    admitted = pending.admit(fresh)           # after one atomic test-and-insert of pending.replay_id
    sealer = admitted.respond(response_nonce) # the request may now be looked at
"""

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError

from strongroom.protocol.derive import hkdf
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.keys import KEY_ID_BYTES, IdentityKey, PublicIdentity, RandomSource
from strongroom.protocol.limits import MAX_ENVELOPES, MAX_REQUEST_FIELDS, MAX_SEALED_REQUEST_BYTES
from strongroom.protocol.padding import BadPadding, pad, request_size, unpad
from strongroom.protocol.response import RecordKeys, ResponseOpener, ResponseSealer
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import Envelope, InferenceRequest, SealedRequest
from strongroom.protocol.wire import TooManyFields, check_field_count

SECRET_BYTES = 32
REPLAY_ID_BYTES = 16
_ZERO_NONCE = bytes(12)
# Envelopes and ciphertext; some room for fields of later versions, which are ignored.
_MAX_SEALED_FIELDS = MAX_ENVELOPES + 8


def _aad(envelopes: Iterable[Envelope]) -> bytes:
    parts = [e.key_id + len(e.sealed).to_bytes(2, "big") + e.sealed for e in envelopes]
    return b"strongroom/1 request" + bytes([len(parts)]) + b"".join(parts)


def _request_key(secret: Secret) -> AESGCM:
    return AESGCM(hkdf(secret.expose(), info=b"strongroom/1 request"))


def _replay_id(secret: Secret) -> bytes:
    return hkdf(secret.expose(), info=b"strongroom/1 replay", length=REPLAY_ID_BYTES)


@dataclasses.dataclass(frozen=True, repr=False)
class ClientExchange:
    """A request as it goes out: `sealed` is a serialised `SealedRequest`; its answer opens with `response()`."""

    sealed: bytes
    _keys: RecordKeys
    _recipients: frozenset[bytes]

    def response(self) -> ResponseOpener:
        """A fresh opener for the one answer to this request."""
        return ResponseOpener(self._keys, self._recipients)


def seal(recipients: Sequence[PublicIdentity], request: InferenceRequest, *, random: RandomSource) -> ClientExchange:
    """Seal `request` so that any one of 1 to 8 `recipients` can answer it. One call is one request: never resend.

    Raises `ValueError` for a wrong number of recipients or a request above 32 MiB, `MalformedKey` for a bad key.
    """
    if not 1 <= len({identity.key_id for identity in recipients}) == len(recipients) <= MAX_ENVELOPES:
        raise ValueError(f"a request is sealed to 1 to {MAX_ENVELOPES} different keys")
    secret = Secret(random(SECRET_BYTES))
    envelopes = [Envelope(key_id=i.key_id, sealed=i.seal(secret.expose())) for i in recipients]
    aad = _aad(envelopes)
    content = request.SerializeToString()
    plaintext = pad(content, request_size(len(content)))
    ciphertext = _request_key(secret).encrypt(_ZERO_NONCE, plaintext, aad)
    sealed = SealedRequest(envelopes=envelopes, ciphertext=ciphertext).SerializeToString()
    if len(sealed) > MAX_SEALED_REQUEST_BYTES:
        raise ValueError(f"the request has {len(sealed)} bytes sealed, the limit is {MAX_SEALED_REQUEST_BYTES}")
    keys = RecordKeys(secret, hashlib.sha256(aad + ciphertext).digest())
    return ClientExchange(sealed, keys, frozenset(identity.key_id for identity in recipients))


class RequestOpener:
    """Opens requests under one state of a worker's key ring; made anew whenever the ring changes.

    `retired` holds the ids of keys that no longer open anything but still count as this worker's.
    """

    def __init__(self, keys: Sequence[IdentityKey], retired: Collection[bytes] = ()) -> None:
        self._keys: Mapping[bytes, IdentityKey] = {key.public.key_id: key for key in keys}
        self._own = frozenset(self._keys) | frozenset(retired)

    def open(self, raw: bytes) -> "PendingRequest":
        """Open a serialised `SealedRequest`; raises `RequestRefused` with the code for the wire."""
        if len(raw) > MAX_SEALED_REQUEST_BYTES:
            raise RequestRefused(WireCode.TOO_LARGE)
        try:
            check_field_count(raw, _MAX_SEALED_FIELDS)
            message = SealedRequest.FromString(raw)
        except (DecodeError, TooManyFields) as error:
            raise RequestRefused(WireCode.MALFORMED) from error
        envelope = self._own_envelope(message)
        key = self._keys.get(envelope.key_id)
        if key is None:
            raise RequestRefused(WireCode.UNKNOWN_KEY)
        secret = key.open(envelope.sealed)
        aad = _aad(message.envelopes)
        try:
            if len(secret.expose()) != SECRET_BYTES:
                raise BadPadding("not a request secret")
            plaintext = _request_key(secret).decrypt(_ZERO_NONCE, message.ciphertext, aad)
            content = unpad(plaintext)
            if len(plaintext) != request_size(len(content)):
                raise BadPadding("not the size that the padding rule gives")
            check_field_count(content, MAX_REQUEST_FIELDS)
            request = InferenceRequest.FromString(content)
        except (InvalidTag, BadPadding, DecodeError, ValueError) as error:
            raise RequestRefused(WireCode.MALFORMED) from error
        keys = RecordKeys(secret, hashlib.sha256(aad + message.ciphertext).digest())
        return PendingRequest(_replay_id(secret), envelope.key_id, request, keys)

    def _own_envelope(self, message: SealedRequest) -> Envelope:
        envelopes = message.envelopes
        if not 1 <= len(envelopes) <= MAX_ENVELOPES:
            raise RequestRefused(WireCode.MALFORMED)
        identifiers = {envelope.key_id for envelope in envelopes}
        if len(identifiers) != len(envelopes) or any(
            len(e.key_id) != KEY_ID_BYTES or len(e.sealed) >= 2**16 for e in envelopes
        ):
            raise RequestRefused(WireCode.MALFORMED)
        own = identifiers & self._own
        if not own:
            raise RequestRefused(WireCode.UNKNOWN_KEY)
        if len(own) > 1:
            raise RequestRefused(WireCode.MALFORMED)
        return next(envelope for envelope in envelopes if envelope.key_id in own)


class PendingRequest:
    """A request that has opened but was not yet tested for replay: nothing of its content can be seen."""

    def __init__(self, replay_id: bytes, key_id: bytes, request: InferenceRequest, keys: RecordKeys) -> None:
        self.replay_id = replay_id
        self.key_id = key_id
        self._request = request
        self._keys = keys

    def admit(self, fresh: bool) -> "AdmittedRequest":
        """The request itself, if `replay_id` was new to the replay set; raises `RequestRefused` (replay)."""
        if not fresh:
            raise RequestRefused(WireCode.REPLAY)
        return AdmittedRequest(self._request, self.key_id, self._keys)


class AdmittedRequest:
    """A request that this worker may execute, once."""

    def __init__(self, request: InferenceRequest, key_id: bytes, keys: RecordKeys) -> None:
        self.request = request
        self._key_id = key_id
        self._keys: RecordKeys | None = keys

    def respond(self, response_nonce: bytes) -> ResponseSealer:
        """The sealer of the one answer; `response_nonce` is 32 fresh random bytes. A second call is an error."""
        if self._keys is None:
            raise ValueError("a request has one answer")
        keys, self._keys = self._keys, None
        return ResponseSealer(keys, self._key_id, response_nonce)
