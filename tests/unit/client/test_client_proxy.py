"""The proxy: OpenAI's API in front of the sealed channel, with no way around verification, salt or wholeness."""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest
from fake_worker import POLICY, REAL_POLICY, Answer, FakeWorker, hanging, mangled, reply, sse

from strongroom.client import proxy
from strongroom.client.channel import VerifiedChannel
from strongroom.client.proxy import proxy_app, serve
from strongroom.client.salts import Salter
from strongroom.protocol import request as sealing
from strongroom.protocol.cache import check_cache_salt, new_cache_salt
from strongroom.protocol.canonical import base64url
from strongroom.protocol.errors import WireCode
from strongroom.protocol.keys import key_id

CHAT = "/v1/chat/completions"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "canary-prompt-77"}]}
STREAM = "text/event-stream; charset=utf-8"
COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "tiny",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}],
}


@pytest.fixture
async def http(channel: VerifiedChannel) -> AsyncIterator[httpx.AsyncClient]:
    """The application without a server around it."""
    transport = httpx.ASGITransport(proxy_app(channel, Salter()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost:8080") as client:
        yield client


@contextlib.asynccontextmanager
async def served(channel: VerifiedChannel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The proxy as the command runs it, on a socket; gives its base URL."""
    made: list[Any] = []

    class Captured(proxy._Server):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(proxy, "_Server", Captured)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(serve(proxy_app(channel, Salter()), sock))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        made[0].should_exit = True
        await asyncio.wait_for(serving, 10)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().remove_signal_handler(number)


@pytest.fixture
async def url(channel: VerifiedChannel, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    async with served(channel, monkeypatch) as base:
        yield base


@pytest.fixture
async def sdk(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The error, which must have the shape that OpenAI's SDKs read."""
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


# What is passed on ------------------------------------------------------------------------------------------------


async def test_a_chat_reaches_the_worker_sealed_and_its_answer_the_client(
    worker: FakeWorker, http: httpx.AsyncClient
) -> None:
    worker.answer = reply(json.dumps(COMPLETION).encode())
    answer = await http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()) == (200, COMPLETION)
    (request,) = worker.requests
    assert request.path == CHAT
    assert BODY.items() <= json.loads(request.body).items()
    assert b"canary" not in worker.received[0]


async def test_the_workers_errors_keep_their_status_and_text(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    worker.answer = reply(b'{"error":{"message":"no"}}', status=418)
    answer = await http.post(CHAT, json=BODY)
    assert (answer.status_code, answer.json()) == (418, {"error": {"message": "no"}})


async def test_models_are_asked_of_the_worker_without_a_body(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    assert (await http.get("/v1/models")).json() == {"ok": True}
    assert (worker.requests[0].path, worker.requests[0].body) == ("/v1/models", b"")


async def test_only_the_content_type_of_the_clients_headers_goes_further(
    worker: FakeWorker, http: httpx.AsyncClient
) -> None:
    await http.post(CHAT, json=BODY, headers={"Authorization": "Bearer canary", "Cookie": "canary"})
    assert [(h.name, h.value) for h in worker.requests[0].headers] == [("content-type", "application/json")]


async def test_every_request_leaves_with_a_salt_of_its_own(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    for body in (BODY, BODY, BODY | {"cache_salt": None}):
        await http.post(CHAT, json=body)
    salts = [json.loads(request.body)["cache_salt"] for request in worker.requests]
    assert len(set(salts)) == 3
    assert all(check_cache_salt(salt) for salt in salts)
    assert not any(request.cache.reuse for request in worker.requests)


async def test_a_salt_of_the_client_or_of_the_configuration_is_for_reuse(
    worker: FakeWorker, channel: VerifiedChannel, http: httpx.AsyncClient
) -> None:
    own, configured = new_cache_salt(os.urandom), new_cache_salt(os.urandom)
    await http.post(CHAT, json=BODY | {"cache_salt": own})
    transport = httpx.ASGITransport(proxy_app(channel, Salter(configured)))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as other:
        await other.post(CHAT, json=BODY)
    assert [json.loads(request.body)["cache_salt"] for request in worker.requests] == [own, configured]
    assert all(request.cache.reuse for request in worker.requests)


# What is refused on this machine ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "10.0.0.1", "[::2]:80", "", "a b"]
)
async def test_a_name_that_does_not_mean_this_machine_is_refused(
    worker: FakeWorker, http: httpx.AsyncClient, host: str
) -> None:
    answer = await http.post(CHAT, json=BODY, headers={"Host": host})
    assert answer.status_code == 400
    assert worker.calls == []


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "[::1]", "LOCALHOST"])
async def test_a_name_of_this_machine_is_served(worker: FakeWorker, http: httpx.AsyncClient, host: str) -> None:
    assert (await http.post(CHAT, json=BODY, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/json"]
)
async def test_a_body_that_a_web_page_could_send_is_refused(
    worker: FakeWorker, http: httpx.AsyncClient, kind: str | None
) -> None:
    answer = await http.post(CHAT, content=json.dumps(BODY), headers={"Content-Type": kind} if kind else {})
    assert error_of(answer, 415)["type"] == "invalid_request_error"
    assert worker.calls == []


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON"])
async def test_json_is_accepted_however_it_is_written(worker: FakeWorker, http: httpx.AsyncClient, kind: str) -> None:
    answer = await http.post(CHAT, content=json.dumps(BODY), headers={"Content-Type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'"x"'])
async def test_a_body_without_an_object_is_refused(worker: FakeWorker, http: httpx.AsyncClient, raw: bytes) -> None:
    answer = await http.post(CHAT, content=raw, headers={"Content-Type": "application/json"})
    assert error_of(answer, 400)["type"] == "invalid_request_error"
    assert worker.calls == []


async def test_a_body_above_the_limit_is_refused(
    worker: FakeWorker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy, "MAX_SEALED_REQUEST_BYTES", 100)
    error_of(await http.post(CHAT, json=BODY | {"pad": "x" * 100}), 413)
    assert worker.calls == []


async def test_a_body_that_is_too_large_once_sealed_is_refused(
    worker: FakeWorker, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sealing, "MAX_SEALED_REQUEST_BYTES", 1500)
    error_of(await http.post(CHAT, json=BODY), 413)
    assert worker.received == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/completions"),
        ("POST", "/v1/embeddings"),
        ("GET", CHAT),
        ("DELETE", "/v1/models"),
        ("OPTIONS", CHAT),
        ("GET", "/"),
        ("GET", "/metrics"),
    ],
)
async def test_other_paths_and_methods_are_an_error_in_openais_shape(
    worker: FakeWorker, http: httpx.AsyncClient, method: str, path: str
) -> None:
    error = error_of(await http.request(method, path, json=BODY), 404)
    assert f"{method} {path}" in error["message"]
    assert worker.calls == []


async def test_health_asks_nobody(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    assert (await http.get("/healthz")).status_code == 200
    assert worker.calls == []


# What goes wrong on the way -----------------------------------------------------------------------------------------


async def test_a_refused_worker_is_503_and_is_sent_nothing(worker: FakeWorker) -> None:
    async with VerifiedChannel(worker.address, REAL_POLICY) as channel:
        transport = httpx.ASGITransport(proxy_app(channel, Salter()))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            error = error_of(await http.post(CHAT, json=BODY), 503)
            assert error["type"] == "worker_refused"
            assert "tee.type" in error["message"]
            error_of(await http.get("/v1/models"), 503)
    assert worker.received == []


async def test_a_worker_that_is_down_is_503(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    await worker.stop()
    assert error_of(await http.post(CHAT, json=BODY), 503)["type"] == "worker_unreachable"


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (WireCode.TOO_LARGE, 413),
        (WireCode.OVERLOADED, 429),
        (WireCode.REPLAY_SET_FULL, 429),
        (WireCode.MALFORMED, 502),
        (WireCode.DRAINING, 503),
        (WireCode.NOT_READY, 503),
    ],
)
async def test_a_refusal_of_the_worker_has_its_status(
    worker: FakeWorker, http: httpx.AsyncClient, code: WireCode, status: int
) -> None:
    worker.refusals.append(code)
    error = error_of(await http.post(CHAT, json=BODY), status)
    assert error["type"] == code.code
    assert "canary" not in error["message"]


@pytest.mark.parametrize("kept", [0, 1, 2])
async def test_an_answer_that_was_cut_off_is_502(worker: FakeWorker, http: httpx.AsyncClient, kept: int) -> None:
    worker.answer = mangled(lambda p: p[:kept], json.dumps(COMPLETION).encode())
    error = error_of(await http.post(CHAT, json=BODY), 502)
    assert error["type"] == "response_broken"
    assert "hello" not in error["message"]


async def test_an_answer_that_was_changed_is_502(worker: FakeWorker, http: httpx.AsyncClient) -> None:
    worker.answer = mangled(lambda p: [p[0], p[1][:-1] + b"\0", p[2]], json.dumps(COMPLETION).encode())
    error_of(await http.post(CHAT, json=BODY), 502)


async def test_records_that_do_not_parse_are_an_error_in_openais_shape(
    worker: FakeWorker, http: httpx.AsyncClient
) -> None:
    worker.frame = lambda payload: b"\x0a\xff"
    answer = await http.post(CHAT, json=BODY)
    error_of(answer, answer.status_code)
    assert answer.status_code in {502, 503}


async def test_an_attested_key_that_cannot_be_used_is_an_error_in_openais_shape(
    worker: FakeWorker, http: httpx.AsyncClient
) -> None:
    bad = b"\xff" * 1216
    worker.claims["keys"][0] |= {"key_id": key_id(bad).hex(), "public_key": base64url(bad)}
    error_of(await http.post(CHAT, json=BODY), 503)
    assert worker.received == []


# With OpenAI's SDK, over a socket -------------------------------------------------------------------------------------


async def test_the_sdk_reads_a_whole_answer(worker: FakeWorker, sdk: openai.AsyncOpenAI) -> None:
    worker.answer = reply(json.dumps(COMPLETION).encode())
    answer = await sdk.chat.completions.create(**BODY)  # type: ignore[call-overload]
    assert answer.choices[0].message.content == "hello"


async def _streamed(sdk: openai.AsyncOpenAI, texts: list[str]) -> None:
    """Read a stream to its end, as applications do."""
    async for event in await sdk.chat.completions.create(**BODY, stream=True):  # type: ignore[call-overload]
        texts.append(event.choices[0].delta.content)


async def test_the_sdk_reads_a_whole_stream(worker: FakeWorker, sdk: openai.AsyncOpenAI) -> None:
    worker.answer = reply(*sse("one", "two"), kind=STREAM)
    texts: list[str] = []
    await _streamed(sdk, texts)
    assert texts == ["one", "two"]


BROKEN_STREAMS: dict[str, Answer] = {
    "cut in the middle": mangled(lambda p: p[:3], *sse("one", "two"), kind=STREAM),
    "cut after [DONE]": mangled(lambda p: p[:-1], *sse("one", "two"), kind=STREAM),
    "a changed record": mangled(lambda p: [*p[:2], p[2][:-1] + b"\0", *p[3:]], *sse("one", "two"), kind=STREAM),
    "a record dropped": mangled(lambda p: [*p[:2], *p[3:]], *sse("one", "two"), kind=STREAM),
}


@pytest.mark.parametrize("how", ["cut in the middle", "a changed record", "a record dropped"])
async def test_a_broken_stream_makes_the_sdk_raise_instead_of_ending(
    worker: FakeWorker, sdk: openai.AsyncOpenAI, how: str
) -> None:
    worker.answer = BROKEN_STREAMS[how]
    texts: list[str] = []
    with pytest.raises(openai.APIError):
        await _streamed(sdk, texts)
    assert texts in (["one"], ["one", "two"])


async def test_a_worker_that_dies_makes_the_sdk_raise(worker: FakeWorker, sdk: openai.AsyncOpenAI) -> None:
    worker.answer = hanging(2, *sse("one", "two"), kind=STREAM)
    stream = await sdk.chat.completions.create(**BODY, stream=True)  # type: ignore[call-overload]
    assert (await anext(stream)).choices[0].delta.content == "one"
    await worker.stop()
    with pytest.raises(openai.APIError):
        await anext(stream)


@pytest.mark.parametrize("how", BROKEN_STREAMS)
async def test_the_http_body_of_a_broken_stream_has_no_proper_end(worker: FakeWorker, url: str, how: str) -> None:
    worker.answer = BROKEN_STREAMS[how]
    async with httpx.AsyncClient() as http, http.stream("POST", url + CHAT, json=BODY) as answer:
        assert answer.status_code == 200
        raw = bytearray()
        with pytest.raises(httpx.RemoteProtocolError):
            await _into(raw, answer)
    assert b'"type": "response_broken"' in raw


async def _into(raw: bytearray, answer: httpx.Response) -> None:
    async for piece in answer.aiter_raw():
        raw += piece


async def test_a_stream_arrives_as_it_is_made_not_at_its_end(worker: FakeWorker, url: str) -> None:
    worker.answer = hanging(2, *sse("one", "two"), kind=STREAM)
    async with httpx.AsyncClient() as http, http.stream("POST", url + CHAT, json=BODY) as answer:
        assert b'"one"' in await asyncio.wait_for(anext(answer.aiter_raw()), 3)


@pytest.mark.parametrize(
    ("payloads", "kind"),
    [(0, "application/json"), (1, "application/json"), (2, STREAM)],
    ids=["head", "body", "stream"],
)
async def test_a_client_that_goes_away_cancels_the_call_at_the_worker(
    worker: FakeWorker, url: str, payloads: int, kind: str
) -> None:
    """Before the head has come, while the body is collected, and in the middle of a stream."""
    worker.answer = hanging(payloads, *sse("one", "two"), kind=kind)
    async with httpx.AsyncClient() as http:
        asking = asyncio.create_task(http.post(url + CHAT, json=BODY))
        await asyncio.wait_for(worker.opened.wait(), 5)
        await asyncio.sleep(0.1)
        assert not worker.abandoned.is_set()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    await asyncio.wait_for(worker.abandoned.wait(), 3)


async def test_one_hanging_request_does_not_hold_up_others(worker: FakeWorker, url: str) -> None:
    worker.answer = hanging(0)
    async with httpx.AsyncClient() as http:
        asking = asyncio.create_task(http.post(url + CHAT, json=BODY))
        await asyncio.wait_for(worker.opened.wait(), 5)
        worker.answer = reply(b"{}")
        assert (await asyncio.wait_for(http.get(url + "/v1/models"), 3)).status_code == 200
        asking.cancel()


async def test_sigterm_ends_the_server(channel: VerifiedChannel, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(serve(proxy_app(channel, Salter()), sock))
        async with httpx.AsyncClient() as http:
            await http.get(f"http://127.0.0.1:{sock.getsockname()[1]}/healthz")
        # It answered, so its handler is there.
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(serving, 5)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)


def test_the_policy_of_these_tests_differs_from_a_real_one_in_the_simulation_alone() -> None:
    assert POLICY.model_copy(update={"insecure_allow_simulated": False}) == REAL_POLICY
