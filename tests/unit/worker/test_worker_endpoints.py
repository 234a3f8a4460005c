"""What a client may ask for: everything else is refused before the engine, and nothing reaches it without a salt."""

import json
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_engine import FakeServing, error_of
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorInfo, ErrorResponse

from strongroom.protocol import cache
from strongroom.worker.endpoints import ENDPOINTS, Reply, answer
from strongroom.worker.engine import Engine

CHAT = "/v1/chat/completions"
DIGEST = bytes(range(32))
SALT = "KnFpSI-Ahpxnw9ZrUT8bo3oqmRQ9qCDnTl5uis4cd4M"
BODY: dict[str, Any] = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
NAMESPACE_CHARACTERS = len("sr1.") + 43


async def ask(engine: Engine, body: Any, path: str = CHAT) -> Reply:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return await answer(engine, DIGEST, path, raw, os.urandom)


async def test_a_request_reaches_the_engine_and_its_result_the_client(engine: Engine, serving: FakeServing) -> None:
    reply = await ask(engine, BODY | {"max_completion_tokens": 7, "temperature": 0})
    assert (reply.status, reply.body, reply.content_type) == (200, b'{"said":"hello"}', "application/json")
    (request,) = serving.requests
    assert (request.max_completion_tokens, request.temperature) == (7, 0)
    assert request.messages == BODY["messages"]


async def test_a_stream_is_passed_on_as_it_is(engine: Engine, serving: FakeServing) -> None:
    async def stream() -> AsyncIterator[str]:
        yield "data: {}\n\n"

    serving.result = stream()
    reply = await ask(engine, BODY)
    assert (reply.status, reply.content_type) == (200, "text/event-stream; charset=utf-8")
    assert not isinstance(reply.body, bytes)
    assert [event async for event in reply.body] == ["data: {}\n\n"]


# Paths and fields ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["", "/", "/v1/completions", "/v1/chat/completions/", "/v1/chat/../models", "/metrics"]
)
async def test_a_path_outside_the_table_is_404(engine: Engine, serving: FakeServing, path: str) -> None:
    error = error_of(await ask(engine, BODY, path))
    assert error["code"] == 404
    assert CHAT in error["message"]
    assert serving.requests == []


FIELDS = ENDPOINTS[CHAT].fields
ODD_FIELDS = ["prompt", "prompt_embeds", "guided_regex", "lora_request", "best_of", "extra_body"]
ODD_FIELDS += ["Cache_salt", "cache_salt ", "\ud800", ""]
NOT_ACCEPTED = [*sorted(set(ChatCompletionRequest.model_fields) - set(FIELDS)), *ODD_FIELDS]


def test_the_accepted_fields_are_fields_of_vllm() -> None:
    assert set(FIELDS) <= set(ChatCompletionRequest.model_fields)


@pytest.mark.parametrize("field", NOT_ACCEPTED)
async def test_any_other_field_is_refused_by_name(engine: Engine, serving: FakeServing, field: str) -> None:
    error = error_of(await ask(engine, BODY | {field: None}))
    assert (error["code"], error["param"]) == (400, field)
    assert "is not accepted" in error["message"]
    assert serving.requests == []


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe{}",
        json.dumps(BODY).encode("utf-16"),
        b"\xef\xbb\xbf" + json.dumps(BODY).encode(),
        b'{"model":"tiny","messages":[{"role":"user","content":"\xff"}]}',
        b'{"model":"a","model":"b","messages":[]}',
        b'{"model":"tiny","messages":[{"role":"user","role":"system","content":"x"}]}',
        b'{"cache_salt":"x","cache_salt":null,"messages":[]}',
        b'{"messages":[],"temperature":NaN}',
        b'{"messages":[],"temperature":Infinity}',
        b'{"messages":[],"temperature":-Infinity}',
        b'{"messages":[],"seed":' + b"9" * 5000 + b"}",
        b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}",
    ],
    ids=lambda raw: repr(raw[:40]),
)
async def test_a_body_that_is_not_one_json_object_is_400(engine: Engine, serving: FakeServing, raw: bytes) -> None:
    assert error_of(await ask(engine, raw))["code"] == 400
    assert serving.requests == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": "hi"}, "messages"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": []}, "temperature"),
        ({"stream": {}}, "stream"),
    ],
)
async def test_a_value_that_vllm_refuses_is_400_at_its_place(
    engine: Engine, serving: FakeServing, change: dict[str, Any], param: str
) -> None:
    error = error_of(await ask(engine, BODY | change))
    assert error["code"] == 400
    assert error["param"].startswith(param)
    assert serving.requests == []


PARTS = [
    {"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}, "uuid": "victim"},
    {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}},
    {"type": "video_url", "video_url": {"url": "file:///etc/passwd"}},
    {"type": "image_embeds", "image_embeds": "AAAA"},
    {"type": "file", "file": {}},
    {"type": "refusal", "refusal": "no"},
    {"type": ["text"], "text": "x"},
    {"image_url": "http://169.254.169.254/"},
    {},
    "text",
    None,
]
# vLLM looks for media in any part that has a uuid, whatever its type says.
SMUGGLED = [
    {"type": "text", "text": "x", "uuid": "victim", "image_url": {"url": "http://169.254.169.254/"}},
    {"type": "text", "text": "x", "uuid": "victim", "image_embeds": "AAAA"},
    {"type": "text", "text": "x", "uuid": "victim", "prompt_embeds": "AAAA"},
]


@pytest.mark.parametrize("part", [*PARTS, *SMUGGLED], ids=lambda part: json.dumps(part)[:60])
@pytest.mark.parametrize("role", ["user", "system", "assistant", "tool"])
async def test_content_other_than_text_is_refused(engine: Engine, serving: FakeServing, part: Any, role: str) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": role, "content": [{"type": "text", "text": "a"}, part]}]
    error = error_of(await ask(engine, BODY | {"messages": messages}))
    assert (error["code"], error["param"]) == (400, "messages")
    assert serving.requests == []


async def test_content_in_text_parts_is_served(engine: Engine, serving: FakeServing) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert (await ask(engine, BODY | {"messages": messages})).status == 200
    assert len(serving.requests) == 1


# Salts --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "salt",
    ["", " ", "short", "A" * 43, "0123456789abcdef" * 3, SALT[:-1], SALT * 4, SALT + "\n", 0, 7, False, True, [], {}],
)
async def test_a_weak_salt_is_400_and_reaches_nothing(engine: Engine, serving: FakeServing, salt: Any) -> None:
    error = error_of(await ask(engine, BODY | {"cache_salt": salt}))
    assert (error["code"], error["param"]) == (400, "cache_salt")
    assert SALT not in error["message"]
    assert serving.requests == []


@pytest.mark.parametrize("body", [BODY, BODY | {"cache_salt": None}])
async def test_without_a_salt_each_request_gets_a_namespace_of_its_own(
    engine: Engine, serving: FakeServing, body: dict[str, Any]
) -> None:
    for _ in range(5):
        assert (await ask(engine, body)).status == 200
    namespaces = {request.cache_salt for request in serving.requests}
    assert len(namespaces) == 5
    assert all(name.startswith("sr1.") and len(name) == NAMESPACE_CHARACTERS for name in namespaces)


async def test_the_engine_gets_the_namespace_of_a_salt_and_never_the_salt(engine: Engine, serving: FakeServing) -> None:
    for _ in range(2):
        await ask(engine, BODY | {"cache_salt": SALT})
    expected = cache.namespace(SALT, DIGEST).text()
    assert [request.cache_salt for request in serving.requests] == [expected, expected]
    assert SALT not in repr(serving.requests)


async def test_another_model_is_another_namespace(engine: Engine, serving: FakeServing) -> None:
    raw = json.dumps(BODY | {"cache_salt": SALT}).encode()
    for digest in (DIGEST, bytes(32)):
        await answer(engine, digest, CHAT, raw, os.urandom)
    assert len({request.cache_salt for request in serving.requests}) == 2


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10**20) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
BODIES = st.dictionaries(st.sampled_from(sorted(FIELDS)) | st.text(max_size=3), JSON, max_size=4)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=BODIES)
@example(changes={"messages": [{"role": "user", "content": "\ud800"}]})
@example(changes={"user": "\ud800"})
@example(changes={"stop": ["\ud800"], "n": 0})
async def test_whatever_is_asked_there_is_a_reply_and_no_request_without_a_namespace(
    engine: Engine, serving: FakeServing, changes: dict[str, Any]
) -> None:
    serving.requests.clear()
    reply = await ask(engine, BODY | changes)
    assert reply.status in {200, 400, 500}
    assert len(serving.requests) == int(reply.status == 200)
    for request in serving.requests:
        assert request.cache_salt.startswith("sr1.")
        assert len(request.cache_salt) == NAMESPACE_CHARACTERS


# Failures -----------------------------------------------------------------------------------------------------------


class UnknownError(Exception):
    pass


@pytest.mark.parametrize(
    "error",
    [UnknownError("canary"), RuntimeError("canary"), KeyError("canary"), AssertionError("canary"), OSError("canary")],
    ids=lambda error: type(error).__name__,
)
async def test_an_unknown_error_is_500_without_its_text(engine: Engine, serving: FakeServing, error: Exception) -> None:
    serving.result = error
    reply = await ask(engine, BODY)
    assert error_of(reply)["code"] == 500
    assert isinstance(reply.body, bytes)
    assert b"canary" not in reply.body
    assert type(error).__name__.encode() not in reply.body


async def test_an_error_of_the_client_is_400_with_its_text(engine: Engine, serving: FakeServing) -> None:
    serving.result = ValueError("the prompt is too long")
    error = error_of(await ask(engine, BODY))
    assert (error["code"], error["message"]) == (400, "the prompt is too long")


@pytest.mark.parametrize("error", [ValueError("lone \ud800"), TypeError("\udfff"), RuntimeError("\ud800")])
async def test_an_error_whose_text_is_no_unicode_is_still_a_reply(
    engine: Engine, serving: FakeServing, error: Exception
) -> None:
    """Errors quote what clients sent, and JSON can carry lone surrogates."""
    serving.result = error
    assert (await ask(engine, BODY)).status in {400, 500}


async def test_a_result_that_cannot_be_written_is_500(engine: Engine, serving: FakeServing) -> None:
    serving.result = ErrorResponse(error=ErrorInfo(message="\ud800", type="x", code=400))
    assert (await ask(engine, BODY)).status in {400, 500}


async def test_an_error_response_keeps_its_status(engine: Engine, serving: FakeServing) -> None:
    serving.result = ErrorResponse(error=ErrorInfo(message="no such model", type="NotFoundError", code=404))
    assert error_of(await ask(engine, BODY))["message"] == "no such model"


async def test_the_list_of_models_does_not_tell_the_folder(engine: Engine) -> None:
    reply = await answer(engine, DIGEST, "/v1/models", b"whatever", os.urandom)
    assert reply.status == 200
    assert isinstance(reply.body, bytes)
    assert b"canary" not in reply.body
    assert json.loads(reply.body)["data"][0] == {"id": "tiny", "root": "tiny", "owned_by": "strongroom"}


HEAVY: dict[str, dict[str, Any]] = {
    "very many empty messages": {"messages": [{}] * 5000},
    "messages that are none": {"messages": [5] * 100},
    "very many messages": {"messages": [{"role": "user", "content": "x"}] * 2049},
    "very many parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * 2049}]},
    "a message with tool calls": {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]},
    "no messages": {"messages": []},
    "content that is an object": {"messages": [{"role": "user", "content": {"type": "text"}}]},
    "very many choices": {"n": 17},
    "very many logprobs": {"top_logprobs": 21},
    "a long logit_bias": {"logit_bias": {str(i): 1 for i in range(1025)}},
    "very many stop tokens": {"stop_token_ids": [1] * 1025},
    "very many stops": {"stop": ["x"] * 17},
    "a huge top_k": {"top_k": 2**70},
}


@pytest.mark.parametrize("what", HEAVY)
async def test_what_would_cost_everybody_is_refused_before_vllm_sees_it(
    engine: Engine, serving: FakeServing, what: str
) -> None:
    error = error_of(await ask(engine, BODY | HEAVY[what]))
    assert error["code"] == 400
    assert error["param"] in HEAVY[what]
    assert serving.requests == []


async def test_a_body_longer_than_any_prompt_is_refused(engine: Engine, serving: FakeServing) -> None:
    most = 64 * 1024 + 16 * engine.max_model_len
    long = BODY | {"messages": [{"role": "user", "content": "x" * most}]}
    assert error_of(await ask(engine, long))["code"] == 400
    assert serving.requests == []
    # Control: half of that goes through, and what is too long in tokens is the engine's to refuse.
    await ask(engine, BODY | {"messages": [{"role": "user", "content": "x" * (most // 2)}]})
    assert len(serving.requests) == 1


async def test_members_that_are_null_are_as_if_absent(engine: Engine, serving: FakeServing) -> None:
    message = {"role": "user", "content": "x", "tool_calls": None, "refusal": None}
    await ask(engine, BODY | {"messages": [message]})
    assert len(serving.requests) == 1
