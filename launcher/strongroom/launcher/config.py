"""The launcher's configuration: a YAML file, with flags that override it. Unknown keys are refused."""

import hashlib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from strongroom.attestation.strict_yaml import BadYaml, load_yaml
from strongroom.launcher.errors import LaunchRefused
from strongroom.protocol import canonical, limits
from strongroom.protocol.address import Address
from strongroom.protocol.errors import BadProfile
from strongroom.protocol.padding import StreamShape

TeeChoice = Literal["auto", "sev-snp", "tdx", "azure-vtpm", "simulated"]


def _check_address(text: str) -> str:
    return str(Address.parse(text))


AddressText = Annotated[str, AfterValidator(_check_address)]
ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class Engine(_Closed):
    """Arguments of vLLM that an operator may set; all others are fixed by the confidential profile."""

    max_model_len: int | None = Field(None, ge=16, lt=2**31, description="longest prompt plus answer, in tokens")
    max_num_seqs: int | None = Field(None, ge=1, le=4096, description="requests that run at once")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field("auto", description="type of the weights")
    seed: int = Field(0, ge=0, lt=2**31, description="the engine's own random seed")
    tensor_parallel_size: int = Field(1, ge=1, le=64, description="GPUs that share the model")
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1, description="share of GPU memory to use")
    cpu_kv_cache_gib: int = Field(4, ge=1, lt=2**20, description="GiB of KV cache, on the CPU platform only")
    enforce_eager: bool = Field(False, description="no compilation, no CUDA graphs")


class Stream(_Closed):
    """The least shape of every response."""

    padding: str = Field("bucket-256", description="none, bucket-N or constant-N")
    tick_ms: int = Field(20, description="milliseconds over which output is grouped")

    @model_validator(mode="after")
    def _is_a_shape(self) -> "Stream":
        try:
            StreamShape.parse(self.padding, self.tick_ms)
        except BadProfile as error:
            raise ValueError(str(error)) from error
        return self


class Keys(_Closed):
    """Rotation of identity keys."""

    lifetime_seconds: int = Field(
        limits.KEY_LIFETIME_SECONDS, ge=2, le=86400, description="time for which a key is the current one"
    )
    grace_seconds: int = Field(limits.KEY_GRACE_SECONDS, ge=1, le=86400, description="time a retired key still opens")


class Limits(_Closed):
    """Bounds on what clients can make the worker hold."""

    open_requests: int = Field(1024, ge=1, le=65536, description="requests in progress; more are told overloaded")
    replay_ids: int = Field(limits.MAX_REPLAY_IDS, ge=16, description="ids that the replay set holds")


class Restart(_Closed):
    """What happens when a front end or its engine dies."""

    attempts: int = Field(5, ge=0, le=1000, description="restarts within the window before the launcher gives up")
    window_seconds: int = Field(600, ge=1, description="time after which a restart no longer counts")


class Config(_Closed):
    """The whole file."""

    model: Path = Field(description="folder with config.json, tokenizer and *.safetensors")
    served_model_name: ModelName = Field(description="the name that clients use")
    tee: TeeChoice = Field("auto", description="where evidence comes from")
    listen: AddressText = Field("0.0.0.0:8443", description="sealed gRPC")
    report_listen: AddressText = Field("0.0.0.0:8444", description="attestation report, health, metrics")
    engine: Engine = Engine()
    stream: Stream = Stream()
    keys: Keys = Keys()
    limits: Limits = Limits()
    restart: Restart = Restart()
    drain_seconds: int = Field(30, ge=0, le=3600, description="time for open requests after SIGTERM")
    start_seconds: int = Field(1800, ge=10, description="longest start of the engine")

    def digest(self) -> str:
        """The value of `claims.launcher.config`: it covers every member, defaults included."""
        return "sha256:" + hashlib.sha256(canonical.encode(self.model_dump(mode="json"))).hexdigest()


def load_config(path: Path | None, flags: dict[str, Any]) -> Config:
    """Read `path` if there is one, lay `flags` that are set over it; raises `LaunchRefused` with every fault."""
    document: Any = {}
    if path is not None:
        try:
            document = load_yaml(path.read_text(encoding="utf-8")) or {}
        except OSError as error:
            raise LaunchRefused(f"cannot read the configuration {path}: {error.strerror}") from error
        except (BadYaml, UnicodeDecodeError) as error:
            raise LaunchRefused(f"the configuration {path} is not YAML: {error}") from error
        if not isinstance(document, dict):
            raise LaunchRefused(f"the configuration {path} must be a mapping of settings")
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        return Config.model_validate({**document, **given})
    except ValidationError as error:
        faults = "\n".join(f"  {'.'.join(map(str, f['loc'])) or 'configuration'}: {_say(f)}" for f in error.errors())
        raise LaunchRefused(
            f"the configuration is wrong (docs/configuration.md lists all settings):\n{faults}"
        ) from error


def _say(fault: Any) -> str:
    if fault["type"] == "missing":
        name = "--" + str(fault["loc"][0]).replace("_", "-")
        return f"is missing; give it in the file or as {name}"
    if fault["type"] == "extra_forbidden":
        return "is not a setting"
    return str(fault["msg"])
