from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ConfigureRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Settings(_message.Message):
    __slots__ = ("model_path", "served_model_name", "listen", "engine", "max_open_requests", "drain_seconds")
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    SERVED_MODEL_NAME_FIELD_NUMBER: _ClassVar[int]
    LISTEN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    MAX_OPEN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    DRAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    model_path: str
    served_model_name: str
    listen: str
    engine: EngineSettings
    max_open_requests: int
    drain_seconds: int
    def __init__(self, model_path: _Optional[str] = ..., served_model_name: _Optional[str] = ..., listen: _Optional[str] = ..., engine: _Optional[_Union[EngineSettings, _Mapping]] = ..., max_open_requests: _Optional[int] = ..., drain_seconds: _Optional[int] = ...) -> None: ...

class EngineSettings(_message.Message):
    __slots__ = ("max_model_len", "max_num_seqs", "dtype", "seed", "tensor_parallel_size", "gpu_memory_utilization", "cpu_kv_cache_gib", "enforce_eager")
    MAX_MODEL_LEN_FIELD_NUMBER: _ClassVar[int]
    MAX_NUM_SEQS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    TENSOR_PARALLEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    GPU_MEMORY_UTILIZATION_FIELD_NUMBER: _ClassVar[int]
    CPU_KV_CACHE_GIB_FIELD_NUMBER: _ClassVar[int]
    ENFORCE_EAGER_FIELD_NUMBER: _ClassVar[int]
    max_model_len: int
    max_num_seqs: int
    dtype: str
    seed: int
    tensor_parallel_size: int
    gpu_memory_utilization: float
    cpu_kv_cache_gib: int
    enforce_eager: bool
    def __init__(self, max_model_len: _Optional[int] = ..., max_num_seqs: _Optional[int] = ..., dtype: _Optional[str] = ..., seed: _Optional[int] = ..., tensor_parallel_size: _Optional[int] = ..., gpu_memory_utilization: _Optional[float] = ..., cpu_kv_cache_gib: _Optional[int] = ..., enforce_eager: _Optional[bool] = ...) -> None: ...

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
    __slots__ = ("secrets", "retired_key_ids", "model_digest", "padding", "tick_ms")
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    RETIRED_KEY_IDS_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    TICK_MS_FIELD_NUMBER: _ClassVar[int]
    secrets: _containers.RepeatedScalarFieldContainer[bytes]
    retired_key_ids: _containers.RepeatedScalarFieldContainer[bytes]
    model_digest: bytes
    padding: str
    tick_ms: int
    def __init__(self, secrets: _Optional[_Iterable[bytes]] = ..., retired_key_ids: _Optional[_Iterable[bytes]] = ..., model_digest: _Optional[bytes] = ..., padding: _Optional[str] = ..., tick_ms: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("serving", "open_requests", "engine_running", "engine_waiting", "ended")
    class EndedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SERVING_FIELD_NUMBER: _ClassVar[int]
    OPEN_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    ENGINE_RUNNING_FIELD_NUMBER: _ClassVar[int]
    ENGINE_WAITING_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    serving: bool
    open_requests: int
    engine_running: int
    engine_waiting: int
    ended: _containers.ScalarMap[str, int]
    def __init__(self, serving: _Optional[bool] = ..., open_requests: _Optional[int] = ..., engine_running: _Optional[int] = ..., engine_waiting: _Optional[int] = ..., ended: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PulseAnswer(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
