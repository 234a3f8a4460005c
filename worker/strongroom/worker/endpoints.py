"""What a client may ask for: one table of paths, each with its fields and the serving object behind it.

Whatever is not in the table is refused by name.
"""

import dataclasses
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from typing import Any

from pydantic import BaseModel, ValidationError
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

from strongroom.protocol import cache, canonical
from strongroom.protocol.errors import WeakSalt
from strongroom.protocol.keys import RandomSource
from strongroom.worker.engine import Engine

MAX_MESSAGES = 2048
_MESSAGE_MEMBERS = {"role", "content", "name"}
_MOST_ENTRIES = {"logit_bias": 1024, "stop": 16, "stop_token_ids": 1024}
_MOST = {"n": 16, "top_logprobs": 20, "top_k": 2**31 - 1}
# A body may have this many bytes for each token of the longest prompt, and some for what stands around it.
_BYTES_FOR_A_TOKEN = 16
_BYTES_BESIDE = 64 * 1024


@dataclasses.dataclass(frozen=True)
class Reply:
    """The HTTP response of an endpoint; `body` is whole, or a stream of server-sent events."""

    status: int
    body: bytes | AsyncGenerator[str, None]

    @property
    def content_type(self) -> str:
        """The value of the one header."""
        return "application/json" if isinstance(self.body, bytes) else "text/event-stream; charset=utf-8"


class Refused(Exception):
    """A request that is answered with an error in OpenAI's shape. The message is for the client alone."""

    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param

    def reply(self) -> Reply:
        """The answer."""
        kind = {400: "BadRequestError", 404: "NotFoundError"}.get(self.status, "InternalServerError")
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.status}
        return Reply(self.status, json.dumps({"error": error}).encode("utf-8"))


INTERNAL_ERROR = Refused(500, "internal error; the request was not completed")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """One path: which fields its body may have, and what answers it."""

    fields: Collection[str]
    answer: Callable[[Engine, dict[str, Any]], Awaitable[Reply]]


def _render(result: Any) -> Reply:
    """What one of vLLM's serving objects gave, as a reply."""
    if isinstance(result, ErrorResponse):
        # Not model_dump_json: errors quote what clients sent, and JSON can carry lone surrogates.
        return Reply(result.error.code, json.dumps(result.model_dump()).encode("ascii"))
    if isinstance(result, BaseModel):
        return Reply(200, result.model_dump_json().encode("utf-8"))
    return Reply(200, result)


async def _chat_completions(engine: Engine, body: dict[str, Any]) -> Reply:
    _check_messages(body.get("messages"))
    for name, most in _MOST_ENTRIES.items():
        if isinstance(body.get(name), list | dict) and len(body[name]) > most:
            raise Refused(400, f"{name} may have at most {most} entries", name)
    for name, most in _MOST.items():
        if isinstance(body.get(name), int | float) and body[name] > most:
            raise Refused(400, f"{name} may be at most {most}", name)
    request = ChatCompletionRequest.model_validate(body)
    return _render(await engine.serving.openai_serving_chat.create_chat_completion(request))


async def _models(engine: Engine, _: dict[str, Any]) -> Reply:
    result = await engine.serving.openai_serving_models.show_available_models()
    for card in result.data:
        # The model's folder is nobody's business, and vLLM puts it here.
        card.root = card.id
        card.owned_by = "strongroom"
    return _render(result)


def _check_messages(messages: Any) -> None:
    """Refuse what is not a list of text messages, before vLLM's types try every shape that each might have.

    Content that is not text would be fetched, decoded and cached across scopes; other members reach templates.
    """
    if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
        raise Refused(400, f"messages must be a list of 1 to {MAX_MESSAGES} messages", "messages")
    parts = 0
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Refused(400, "each message must be an object with a role", "messages")
        unknown = sorted(name for name in message if name not in _MESSAGE_MEMBERS and message[name] is not None)
        if unknown:
            raise Refused(400, f"member {unknown[0]!r} of a message is not accepted", "messages")
        content = message.get("content")
        if isinstance(content, list):
            parts += len(content)
            if parts > MAX_MESSAGES or not all(map(_is_text, content)):
                raise Refused(400, f"content must be text, in at most {MAX_MESSAGES} parts", "messages")
        elif not isinstance(content, str):
            raise Refused(400, "content must be a string or a list of text parts", "messages")


def _is_text(part: Any) -> bool:
    # The whole part is compared: vLLM looks for media beside a text too.
    return (
        isinstance(part, dict)
        and part.keys() == {"type", "text"}
        and part["type"] == "text"
        and isinstance(part["text"], str)
    )


ENDPOINTS = {
    "/v1/chat/completions": Endpoint(
        fields=frozenset(
            {
                "cache_salt",
                "frequency_penalty",
                "ignore_eos",
                "logit_bias",
                "logprobs",
                "max_completion_tokens",
                "max_tokens",
                "messages",
                "min_p",
                "min_tokens",
                "model",
                "n",
                "presence_penalty",
                "repetition_penalty",
                "seed",
                "stop",
                "stop_token_ids",
                "stream",
                "stream_options",
                "temperature",
                "top_k",
                "top_logprobs",
                "top_p",
                "user",
            }
        ),
        answer=_chat_completions,
    ),
    "/v1/models": Endpoint(fields=frozenset(), answer=_models),
}


async def answer(engine: Engine, model_digest: bytes, path: str, body: bytes, random: RandomSource) -> Reply:
    """Answer one request: path, fields and salt are checked here, the rest is vLLM's. Never raises `Exception`."""
    try:
        endpoint = ENDPOINTS.get(path)
        if endpoint is None:
            raise Refused(404, f"path {path!r} is not served; served are {', '.join(ENDPOINTS)}")
        most = _BYTES_BESIDE + _BYTES_FOR_A_TOKEN * engine.max_model_len
        if len(body) > most:
            raise Refused(400, f"the body may have at most {most} bytes for this model")
        fields = _parse(body) if endpoint.fields else {}
        unknown = sorted(fields.keys() - endpoint.fields)
        if unknown:
            raise Refused(400, f"field {unknown[0]!r} is not accepted by {path}", unknown[0])
        if endpoint.fields:
            fields["cache_salt"] = _namespace(fields.get("cache_salt"), model_digest, random)
        return await endpoint.answer(engine, fields)
    except Refused as error:
        return error.reply()
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        return Refused(400, f"{place}: {fault['msg']}" if place else str(fault["msg"]), place or None).reply()
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> Reply:
    response = create_error_response(error)
    if 400 <= response.error.code < 500:
        return _render(response)
    return INTERNAL_ERROR.reply()


def _namespace(salt: Any, model_digest: bytes, random: RandomSource) -> str:
    """The engine's `cache_salt`: derived from the client's, or from a fresh one if there is none."""
    try:
        checked = cache.new_cache_salt(random) if salt is None else cache.check_cache_salt(salt)
    except WeakSalt as error:
        raise Refused(400, str(error), "cache_salt") from error
    return cache.namespace(checked, model_digest).text()


def _parse(body: bytes) -> dict[str, Any]:
    try:
        return canonical.parse(body)
    except canonical.NotCanonical as error:
        raise Refused(400, f"the body is refused: {error}") from error
