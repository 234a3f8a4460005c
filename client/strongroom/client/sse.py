"""Server-sent events of OpenAI's streaming responses."""

import json
from collections.abc import AsyncIterator
from typing import Any


async def events(body: AsyncIterator[bytes]) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a `text/event-stream` whose events are single `data:` lines, up to `[DONE]`.

    The stream is read to its end, so that a cut one is noticed.
    """
    buffered = b""
    async for piece in body:
        buffered += piece
        *whole, buffered = buffered.split(b"\n\n")
        for event in whole:
            data = event.removeprefix(b"data:").strip()
            if data and data != b"[DONE]":
                yield json.loads(data)
