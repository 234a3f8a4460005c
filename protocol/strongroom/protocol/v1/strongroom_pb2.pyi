from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AttestationRequest(_message.Message):
    __slots__ = ("nonce",)
    NONCE_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    def __init__(self, nonce: _Optional[bytes] = ...) -> None: ...

class AttestationBundle(_message.Message):
    __slots__ = ("claims", "tee", "devices", "nonce_path", "nonce_index", "nonce_count")
    CLAIMS_FIELD_NUMBER: _ClassVar[int]
    TEE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    NONCE_PATH_FIELD_NUMBER: _ClassVar[int]
    NONCE_INDEX_FIELD_NUMBER: _ClassVar[int]
    NONCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    claims: bytes
    tee: Evidence
    devices: _containers.RepeatedCompositeFieldContainer[Evidence]
    nonce_path: _containers.RepeatedScalarFieldContainer[bytes]
    nonce_index: int
    nonce_count: int
    def __init__(self, claims: _Optional[bytes] = ..., tee: _Optional[_Union[Evidence, _Mapping]] = ..., devices: _Optional[_Iterable[_Union[Evidence, _Mapping]]] = ..., nonce_path: _Optional[_Iterable[bytes]] = ..., nonce_index: _Optional[int] = ..., nonce_count: _Optional[int] = ...) -> None: ...

class Evidence(_message.Message):
    __slots__ = ("type", "report", "certificates", "endorsements")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    ENDORSEMENTS_FIELD_NUMBER: _ClassVar[int]
    type: str
    report: bytes
    certificates: _containers.RepeatedScalarFieldContainer[bytes]
    endorsements: _containers.RepeatedCompositeFieldContainer[Endorsement]
    def __init__(self, type: _Optional[str] = ..., report: _Optional[bytes] = ..., certificates: _Optional[_Iterable[bytes]] = ..., endorsements: _Optional[_Iterable[_Union[Endorsement, _Mapping]]] = ...) -> None: ...

class Endorsement(_message.Message):
    __slots__ = ("type", "data")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    type: str
    data: bytes
    def __init__(self, type: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class SealedRequest(_message.Message):
    __slots__ = ("envelopes", "ciphertext")
    ENVELOPES_FIELD_NUMBER: _ClassVar[int]
    CIPHERTEXT_FIELD_NUMBER: _ClassVar[int]
    envelopes: _containers.RepeatedCompositeFieldContainer[Envelope]
    ciphertext: bytes
    def __init__(self, envelopes: _Optional[_Iterable[_Union[Envelope, _Mapping]]] = ..., ciphertext: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("key_id", "sealed")
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    key_id: bytes
    sealed: bytes
    def __init__(self, key_id: _Optional[bytes] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class SealedRecord(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: bytes
    def __init__(self, payload: _Optional[bytes] = ...) -> None: ...

class InferenceRequest(_message.Message):
    __slots__ = ("path", "headers", "body", "stream", "cache")
    PATH_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    path: str
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    body: bytes
    stream: StreamProfile
    cache: CacheProfile
    def __init__(self, path: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., body: _Optional[bytes] = ..., stream: _Optional[_Union[StreamProfile, _Mapping]] = ..., cache: _Optional[_Union[CacheProfile, _Mapping]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class StreamProfile(_message.Message):
    __slots__ = ("padding", "tick_ms")
    PADDING_FIELD_NUMBER: _ClassVar[int]
    TICK_MS_FIELD_NUMBER: _ClassVar[int]
    padding: str
    tick_ms: int
    def __init__(self, padding: _Optional[str] = ..., tick_ms: _Optional[int] = ...) -> None: ...

class CacheProfile(_message.Message):
    __slots__ = ("reuse", "offload_cpu", "offload_disk")
    REUSE_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_CPU_FIELD_NUMBER: _ClassVar[int]
    OFFLOAD_DISK_FIELD_NUMBER: _ClassVar[int]
    reuse: bool
    offload_cpu: bool
    offload_disk: bool
    def __init__(self, reuse: _Optional[bool] = ..., offload_cpu: _Optional[bool] = ..., offload_disk: _Optional[bool] = ...) -> None: ...

class ResponseRecord(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[Frame]
    def __init__(self, frames: _Optional[_Iterable[_Union[Frame, _Mapping]]] = ...) -> None: ...

class Frame(_message.Message):
    __slots__ = ("head", "body", "end")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    head: Head
    body: bytes
    end: End
    def __init__(self, head: _Optional[_Union[Head, _Mapping]] = ..., body: _Optional[bytes] = ..., end: _Optional[_Union[End, _Mapping]] = ...) -> None: ...

class Head(_message.Message):
    __slots__ = ("status", "headers")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    status: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, status: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class End(_message.Message):
    __slots__ = ("receipt", "signature")
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    receipt: bytes
    signature: bytes
    def __init__(self, receipt: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...
