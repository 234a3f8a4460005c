"""The main path as applications use it: OpenAI's SDK, through the proxy, to real vLLM; and the channel directly."""

import asyncio
import json
import time

import httpx
import openai
import pytest

from strongroom.client.channel import VerifiedChannel
from strongroom.client.sse import events
from strongroom.protocol.v1.strongroom_pb2 import StreamProfile
from tests.service import Service
from tests.system.conftest import NAME
from tests.system.reference import REQUESTS

CHAT = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


async def streamed(client: openai.AsyncOpenAI, **body: object) -> tuple[str, openai.types.CompletionUsage]:
    stream = await client.chat.completions.create(
        model=NAME, stream=True, stream_options={"include_usage": True}, **body
    )
    said, usage = [], None
    async for chunk in stream:
        said += [choice.delta.content or "" for choice in chunk.choices]
        usage = chunk.usage or usage
    return "".join(said), usage


@pytest.mark.parametrize("label", REQUESTS)
def test_the_text_is_the_engines_own(client: openai.OpenAI, reference: dict[str, str], label: str) -> None:
    answer = client.chat.completions.create(model=NAME, **REQUESTS[label])
    assert answer.choices[0].message.content == reference[label]
    assert len(reference[label]) > 10, "an empty text would prove nothing"


@pytest.mark.parametrize("label", REQUESTS)
async def test_the_streamed_text_is_the_engines_own(
    async_client: openai.AsyncOpenAI, reference: dict[str, str], label: str
) -> None:
    text, usage = await streamed(async_client, **REQUESTS[label])
    assert text == reference[label]
    assert usage.completion_tokens <= REQUESTS[label]["max_tokens"]


def test_another_seed_gives_another_text(client: openai.OpenAI, reference: dict[str, str]) -> None:
    answer = client.chat.completions.create(model=NAME, **(REQUESTS["seeded"] | {"seed": 4321}))
    assert answer.choices[0].message.content != reference["seeded"]


@pytest.mark.parametrize("padding", ["", "bucket-1024", "constant-512"])
async def test_the_channel_gives_the_same_text_in_every_stream_shape(
    service: Service, channel: VerifiedChannel, reference: dict[str, str], padding: str
) -> None:
    shaped = VerifiedChannel(channel._address, channel._policy, stream=StreamProfile(padding=padding, tick_ms=5))
    async with shaped:
        body = json.dumps({"model": NAME, "stream": True, **REQUESTS["seeded"]}).encode()
        response = await shaped.request(CHAT, body, headers=JSON)
        said = [event["choices"][0]["delta"].get("content") or "" async for event in events(response.body)]
    assert "".join(said) == reference["seeded"]


def test_models_are_listed_without_the_path_of_the_model(client: openai.OpenAI, model: object) -> None:
    listed = client.models.list()
    assert [entry.id for entry in listed] == [NAME]
    assert str(model) not in listed.model_dump_json()


async def test_32_streams_at_once_all_end_whole(async_client: openai.AsyncOpenAI) -> None:
    asked = [
        streamed(
            async_client,
            messages=[{"role": "user", "content": f"stream {i}"}],
            max_tokens=20 + i,
            extra_body={"ignore_eos": True},
        )
        for i in range(32)
    ]
    usages = [usage for _, usage in await asyncio.gather(*asked)]
    assert [usage.completion_tokens for usage in usages] == [20 + i for i in range(32)]


async def engine_running(service: Service, wanted: int, seconds: float = 8) -> bool:
    """Whether the engine's own count of running requests gets to `wanted`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await asyncio.to_thread(service.metric, 'strongroom_engine_requests{state="running"}') == wanted:
            return True
        await asyncio.sleep(0.2)
    return False


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_aborts_its_request_in_the_engine(
    service: Service, base_url: str, async_client: openai.AsyncOpenAI, stream: bool
) -> None:
    body = {
        "model": NAME,
        "messages": [{"role": "user", "content": "never ending"}],
        "max_tokens": 8000,
        "ignore_eos": True,
        "stream": stream,
    }
    aborted = service.metric('strongroom_requests_total{outcome="cancelled"}')
    async with httpx.AsyncClient(timeout=60) as http:
        request = asyncio.create_task(http.post(f"{base_url}/chat/completions", json=body))
        assert await engine_running(service, 1), "control: the request must be seen running"
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    # A later request makes the engine report; had the first one gone on, two would run.
    await streamed(async_client, messages=[{"role": "user", "content": "short"}], max_tokens=4)
    assert await engine_running(service, 0)
    assert service.metric('strongroom_requests_total{outcome="cancelled"}') == aborted + 1


async def test_breaking_off_a_stream_in_the_sdk_leaves_the_service_well(
    service: Service, async_client: openai.AsyncOpenAI
) -> None:
    stream = await async_client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "x"}], max_tokens=4000, stream=True
    )
    async for _ in stream:
        break
    await stream.close()
    _, usage = await streamed(
        async_client, messages=[{"role": "user", "content": "y"}], max_tokens=5, extra_body={"ignore_eos": True}
    )
    assert usage.completion_tokens == 5
    assert await engine_running(service, 0)
