"""An engine without vLLM's engine: serving objects that keep what they were asked, and answer what a test chose."""

import json
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from strongroom.worker.endpoints import Reply


class Answered(BaseModel):
    """A response of the engine."""

    said: str = "hello"


class Card(BaseModel):
    """A model, with the folder that vLLM puts into it."""

    id: str = "tiny"
    root: str = "/canary/models/tiny"
    owned_by: str = "vllm"


class Cards(BaseModel):
    """The list of models."""

    data: list[Card] = [Card()]


class FakeServing:
    """Stands for vLLM's serving objects. `result` is a value to give, or an exception to raise."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.result: BaseModel | ErrorResponse | AsyncIterator[str] | BaseException = Answered()

    async def create_chat_completion(self, request: Any) -> Any:
        self.requests.append(request)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    async def show_available_models(self) -> Any:
        return Cards()


def error_of(reply: Reply) -> dict[str, Any]:
    """The error of a reply, in OpenAI's shape."""
    assert isinstance(reply.body, bytes)
    error = json.loads(reply.body)["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert error["code"] == reply.status
    return dict(error)
