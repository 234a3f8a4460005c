"""The record layer of responses, both sides: bytes in, frames out (docs/protocol.md, section 4)."""

import dataclasses
from collections.abc import Collection

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import DecodeError

from strongroom.protocol.derive import hkdf
from strongroom.protocol.errors import MalformedResponse
from strongroom.protocol.keys import KEY_ID_BYTES
from strongroom.protocol.limits import MAX_RECORD_PLAINTEXT_BYTES
from strongroom.protocol.padding import BadPadding, pad, unpad
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import End, Frame, Head, ResponseRecord

RESPONSE_NONCE_BYTES = 32
_TAG_BYTES = 16
_PREAMBLE_BYTES = KEY_ID_BYTES + RESPONSE_NONCE_BYTES
_MAX_RECORD_BYTES = MAX_RECORD_PLAINTEXT_BYTES + _TAG_BYTES


@dataclasses.dataclass(frozen=True, repr=False)
class RecordKeys:
    """What both ends of an exchange know: the request's secret and `th`, the hash of the sealed request."""

    request_secret: Secret
    transcript_hash: bytes

    def cipher(self, key_id: bytes, response_nonce: bytes) -> AESGCM:
        """AES-256-GCM under `k_res`."""
        info = b"strongroom/1 response" + key_id + self.transcript_hash
        return AESGCM(hkdf(self.request_secret.expose(), salt=response_nonce, info=info))


def _nonce(index: int) -> bytes:
    return index.to_bytes(12, "big")


def _aad(last: bool) -> bytes:
    return b"\1" if last else b"\0"


class ResponseSealer:
    """Seals the records of one response, in order. A second use of a nonce is impossible: it counts itself."""

    def __init__(self, keys: RecordKeys, key_id: bytes, response_nonce: bytes) -> None:
        if len(response_nonce) != RESPONSE_NONCE_BYTES:
            raise ValueError(f"a response nonce has {RESPONSE_NONCE_BYTES} bytes")
        self._cipher = keys.cipher(key_id, response_nonce)
        self._preamble = key_id + response_nonce
        self._index = 0
        self._ended = False

    def seal(self, frames: bytes, *, size: int, last: bool) -> bytes:
        """The payload of the next record: `frames` is a serialised `ResponseRecord`, `size` its padded size."""
        if self._ended:
            raise ValueError("the last record was already sealed")
        if size > MAX_RECORD_PLAINTEXT_BYTES:
            raise ValueError(f"a record carries at most {MAX_RECORD_PLAINTEXT_BYTES} bytes of plaintext")
        record = self._cipher.encrypt(_nonce(self._index), pad(frames, size), _aad(last))
        preamble = b"" if self._index else self._preamble
        self._index += 1
        self._ended = last
        return preamble + record


class ResponseOpener:
    """Opens the records of one response, in order.

    Feed each payload to `receive`, and call `finish` when the transport says that the stream is over: only then
    is the response known to be whole. After a `MalformedResponse` there is nothing but more of them.
    """

    def __init__(self, keys: RecordKeys, recipients: Collection[bytes]) -> None:
        self._keys = keys
        self._recipients = recipients
        self._cipher: AESGCM | None = None
        self._index = 0
        self._headed = False
        self._ended = False
        self._failed = False

    @property
    def whole(self) -> bool:
        """Whether the last record was received, and nothing was wrong."""
        return self._ended and not self._failed

    def receive(self, payload: bytes) -> list[Head | bytes | End]:
        """The frames of one record: `Head` first in a response, then `bytes` of the body, `End` last."""
        if self._failed:
            raise MalformedResponse("the response was refused before")
        # Set until this record has turned out well.
        self._failed = True
        events = self._open(payload)
        self._failed = False
        return events

    def _open(self, payload: bytes) -> list[Head | bytes | End]:
        if self._ended:
            raise MalformedResponse("data after the last record")
        if self._cipher is None:
            key_id, nonce = payload[:KEY_ID_BYTES], payload[KEY_ID_BYTES:_PREAMBLE_BYTES]
            payload = payload[_PREAMBLE_BYTES:]
            if key_id not in self._recipients:
                raise MalformedResponse("the answer names a key that the request was not sealed to")
            self._cipher = self._keys.cipher(key_id, nonce)
        if len(payload) > _MAX_RECORD_BYTES:
            raise MalformedResponse("a record is too large")
        plaintext, last = self._decrypt(payload)
        try:
            frames = ResponseRecord.FromString(unpad(plaintext)).frames
        except (BadPadding, DecodeError) as error:
            raise MalformedResponse("a record's content is malformed") from error
        events = [self._accept(frame) for frame in frames]
        if last and not self._ended:
            raise MalformedResponse("the last record has no end")
        if self._ended and not last:
            raise MalformedResponse("an end before the last record")
        return events

    def finish(self) -> None:
        """Raise `MalformedResponse` unless the last record was received."""
        if not self.whole:
            raise MalformedResponse("the response was cut off" if self._index else "no record was received")

    def _decrypt(self, record: bytes) -> tuple[bytes, bool]:
        assert self._cipher is not None
        for last in (False, True):
            try:
                plaintext = self._cipher.decrypt(_nonce(self._index), record, _aad(last))
            except (InvalidTag, ValueError):
                continue
            self._index += 1
            return plaintext, last
        raise MalformedResponse("a record does not open: it was changed, moved or belongs elsewhere")

    def _accept(self, frame: Frame) -> Head | bytes | End:
        kind = frame.WhichOneof("frame")
        if self._ended or kind is None or (kind == "head") == self._headed:
            raise MalformedResponse("frames come in another order than head, body, end")
        if kind == "head":
            self._headed = True
            return frame.head
        if kind == "end":
            self._ended = True
            return frame.end
        return frame.body
