from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EngineDescription(_message.Message):
    __slots__ = ("name", "version", "arguments", "digest", "gpu_cache_bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    GPU_CACHE_BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    arguments: bytes
    digest: str
    gpu_cache_bytes: int
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., arguments: _Optional[bytes] = ..., digest: _Optional[str] = ..., gpu_cache_bytes: _Optional[int] = ...) -> None: ...

class KeyRing(_message.Message):
    __slots__ = ("keys", "retired_key_ids", "model_digest", "padding", "tick_ms")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    RETIRED_KEY_IDS_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    TICK_MS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedCompositeFieldContainer[PrivateKey]
    retired_key_ids: _containers.RepeatedScalarFieldContainer[bytes]
    model_digest: bytes
    padding: str
    tick_ms: int
    def __init__(self, keys: _Optional[_Iterable[_Union[PrivateKey, _Mapping]]] = ..., retired_key_ids: _Optional[_Iterable[bytes]] = ..., model_digest: _Optional[bytes] = ..., padding: _Optional[str] = ..., tick_ms: _Optional[int] = ...) -> None: ...

class PrivateKey(_message.Message):
    __slots__ = ("suite", "secret")
    SUITE_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    suite: str
    secret: bytes
    def __init__(self, suite: _Optional[str] = ..., secret: _Optional[bytes] = ...) -> None: ...

class AdmitRequest(_message.Message):
    __slots__ = ("replay_id", "key_id")
    REPLAY_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    replay_id: bytes
    key_id: bytes
    def __init__(self, replay_id: _Optional[bytes] = ..., key_id: _Optional[bytes] = ...) -> None: ...

class AdmitResponse(_message.Message):
    __slots__ = ("verdict",)
    class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNSPECIFIED: _ClassVar[AdmitResponse.Verdict]
        FRESH: _ClassVar[AdmitResponse.Verdict]
        REPLAY: _ClassVar[AdmitResponse.Verdict]
        FULL: _ClassVar[AdmitResponse.Verdict]
        UNKNOWN_KEY: _ClassVar[AdmitResponse.Verdict]
    UNSPECIFIED: AdmitResponse.Verdict
    FRESH: AdmitResponse.Verdict
    REPLAY: AdmitResponse.Verdict
    FULL: AdmitResponse.Verdict
    UNKNOWN_KEY: AdmitResponse.Verdict
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    verdict: AdmitResponse.Verdict
    def __init__(self, verdict: _Optional[_Union[AdmitResponse.Verdict, str]] = ...) -> None: ...

class Pulse(_message.Message):
    __slots__ = ("serving", "open_streams", "engine_running", "engine_waiting", "counts")
    SERVING_FIELD_NUMBER: _ClassVar[int]
    OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_RUNNING_FIELD_NUMBER: _ClassVar[int]
    ENGINE_WAITING_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    serving: bool
    open_streams: int
    engine_running: int
    engine_waiting: int
    counts: _containers.RepeatedCompositeFieldContainer[Count]
    def __init__(self, serving: _Optional[bool] = ..., open_streams: _Optional[int] = ..., engine_running: _Optional[int] = ..., engine_waiting: _Optional[int] = ..., counts: _Optional[_Iterable[_Union[Count, _Mapping]]] = ...) -> None: ...

class Count(_message.Message):
    __slots__ = ("outcome", "number")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    outcome: str
    number: int
    def __init__(self, outcome: _Optional[str] = ..., number: _Optional[int] = ...) -> None: ...

class PulseAnswer(_message.Message):
    __slots__ = ("drain",)
    DRAIN_FIELD_NUMBER: _ClassVar[int]
    drain: bool
    def __init__(self, drain: _Optional[bool] = ...) -> None: ...
