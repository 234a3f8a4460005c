"""The gate before the engine: whatever path a request took, without a namespace it does not get in."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from vllm.v1.engine import EngineCoreRequest

from strongroom.protocol.cache import namespace, new_cache_salt
from strongroom.worker.engine import UnsaltedRequest, refuse_unsalted

NAMESPACE = namespace(new_cache_salt(lambda size: bytes(range(size))), bytes(32)).text()


class FakeClient:
    """Stands for vLLM's engine client."""

    def __init__(self) -> None:
        self.added: list[tuple[Any, ...]] = []

    async def add_request(self, request_id: str, prompt: Any, *args: Any, **kwargs: Any) -> str:
        self.added.append((request_id, prompt, args, kwargs))
        return "queue"


@pytest.fixture
def client() -> FakeClient:
    made = FakeClient()
    refuse_unsalted(made)
    return made


def core_request(salt: str | None) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id="r",
        prompt_token_ids=[1],
        mm_features=None,
        sampling_params=None,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=salt,
        data_parallel_rank=None,
    )


@dataclasses.dataclass
class Lookalike:
    """Has the attribute, is not the type."""

    cache_salt: str = NAMESPACE


UNSALTED: dict[str, Any] = {
    "a dict without": {"prompt_token_ids": [1]},
    "a dict with none": {"prompt": "x", "cache_salt": None},
    "a dict with an empty one": {"prompt": "x", "cache_salt": ""},
    "a dict with the client's own salt": {"prompt": "x", "cache_salt": "KnFpSI-Ahpxnw9ZrUT8bo3oqmRQ9qCDnTl5uis4cd4M"},
    "a dict with another type": {"prompt": "x", "cache_salt": [NAMESPACE]},
    "a dict with the namespace elsewhere": {"prompt": {"cache_salt": NAMESPACE}},
    "an engine request without": core_request(None),
    "an engine request with an empty one": core_request(""),
    "an engine request with another one": core_request("salt"),
    "a string": "sr1.prompt",
    "a list": [1, 2, 3],
    "a list of dicts": [{"prompt": "x", "cache_salt": NAMESPACE}],
    "none": None,
    "a lookalike": Lookalike(),
    "a namespace object": SimpleNamespace(cache_salt=NAMESPACE),
}


@pytest.mark.parametrize("prompt", UNSALTED.values(), ids=UNSALTED)
@pytest.mark.parametrize("named", [False, True])
async def test_a_request_without_a_namespace_never_reaches_the_engine(
    client: FakeClient, prompt: Any, named: bool
) -> None:
    call = client.add_request(request_id="r", prompt=prompt) if named else client.add_request("r", prompt)
    with pytest.raises(UnsaltedRequest):
        await call
    assert client.added == []


@pytest.mark.parametrize("prompt", [{"prompt": "x", "cache_salt": NAMESPACE}, core_request(NAMESPACE)])
@pytest.mark.parametrize("named", [False, True])
async def test_a_request_with_a_namespace_reaches_it_unchanged(client: FakeClient, prompt: Any, named: bool) -> None:
    call = client.add_request(request_id="r", prompt=prompt) if named else client.add_request("r", prompt)
    assert await call == "queue"
    assert client.added == [("r", prompt, (), {})]


async def test_other_arguments_are_passed_on(client: FakeClient) -> None:
    prompt = {"prompt": "x", "cache_salt": NAMESPACE}
    await client.add_request("r", prompt, "params", priority=3)
    assert client.added == [("r", prompt, ("params",), {"priority": 3})]
