"""Building an engine: what the confidential profile forbids is refused, and the gate stands before the engine."""

import contextlib
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from strongroom.protocol.control.control_pb2 import EngineSettings, Settings
from strongroom.worker import engine
from strongroom.worker.engine import CONFIDENTIAL_PROFILE, EngineDied, EngineRefused, UnsaltedRequest, check_profile

SETTINGS = Settings(
    model_path="model", served_model_name="tiny", engine=EngineSettings(dtype="auto", tensor_parallel_size=1)
)
OTHER = {True: False, False: True, None: "something", "sha256": "builtin"}


def test_the_profile_itself_is_accepted() -> None:
    check_profile(CONFIDENTIAL_PROFILE | {"seed": 7})


@pytest.mark.parametrize("name", CONFIDENTIAL_PROFILE)
def test_an_engine_that_deviates_is_refused_by_name(name: str) -> None:
    with pytest.raises(EngineRefused, match=name):
        check_profile(CONFIDENTIAL_PROFILE | {name: OTHER[CONFIDENTIAL_PROFILE[name]]})


class FakeClient:
    """As much of vLLM's engine client as `start_engine` looks at."""

    def __init__(self, **cache: Any) -> None:
        self.errored = False
        self.added: list[Any] = []
        model = SimpleNamespace(
            dtype=SimpleNamespace(itemsize=2),
            enable_prompt_embeds=False,
            enforce_eager=True,
            max_model_len=64,
            quantization=None,
            seed=0,
            trust_remote_code=False,
            get_num_layers=lambda parallel: 4,
            get_num_kv_heads=lambda parallel: 2,
            get_head_size=lambda: 64,
        )
        settings = {"enable_prefix_caching": True, "prefix_caching_hash_algo": "sha256"} | cache
        self.vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(block_size=16, cache_dtype="auto", num_gpu_blocks=10, **settings),
            model_config=model,
            parallel_config=SimpleNamespace(
                data_parallel_size=1, pipeline_parallel_size=1, tensor_parallel_size=1, world_size=1
            ),
            scheduler_config=SimpleNamespace(max_num_seqs=8),
            lora_config=None,
            kv_transfer_config=None,
            kv_events_config=None,
            speculative_config=None,
        )

    async def add_request(self, request_id: str, prompt: Any, *_: Any) -> None:
        self.added.append(prompt)

    async def get_supported_tasks(self) -> tuple[str, ...]:
        return ("generate",)


@pytest.fixture
def build(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(client: FakeClient) -> None:
        @contextlib.asynccontextmanager
        async def build_client(args: Any) -> AsyncIterator[FakeClient]:
            yield client

        async def init_state(client: FakeClient, state: Any, *_: Any) -> None:
            state.engine_client = client

        monkeypatch.setattr(engine, "build_async_engine_client", build_client)
        monkeypatch.setattr(engine, "init_app_state", init_state)

    return use


async def test_a_built_engine_has_the_gate_and_says_what_it_is(build: Any) -> None:
    client = FakeClient()
    build(client)
    async with engine.start_engine(SETTINGS) as built:
        with pytest.raises(UnsaltedRequest):
            await client.add_request("a", {"prompt": "x"}, None)
        await client.add_request("b", {"prompt": "x", "cache_salt": "sr1.abc"}, None)
        assert [prompt["cache_salt"] for prompt in client.added] == ["sr1.abc"]
        # 10 blocks of 16 tokens, keys and values of 4 layers, 2 heads, 64 numbers of 2 bytes.
        assert built.description.gpu_cache_bytes == 10 * 16 * 2 * 4 * 2 * 64 * 2
        built.check()
        client.errored = True
        with pytest.raises(EngineDied):
            built.check()


@pytest.mark.parametrize("wrong", [{"enable_prefix_caching": False}, {"prefix_caching_hash_algo": "builtin"}])
async def test_a_built_engine_that_is_not_as_asked_for_is_refused(build: Any, wrong: dict[str, Any]) -> None:
    build(FakeClient(**wrong))
    with pytest.raises(EngineRefused, match=next(iter(wrong))):
        async with engine.start_engine(SETTINGS):
            pass
