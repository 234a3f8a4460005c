"""Sends one response: what an endpoint produces goes into the shaper, what is due comes out."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from strongroom.protocol.shaper import ResponseShaper
from strongroom.protocol.v1.strongroom_pb2 import End, Head, Header
from strongroom.worker.endpoints import INTERNAL_ERROR, Reply


async def send(
    reply: Callable[[], Awaitable[Reply]], shaper: ResponseShaper, write: Callable[[bytes], Awaitable[object]]
) -> int:
    """Produce the reply and write its records as they fall due; gives the HTTP status.

    When this is cancelled, because the client went away, so is the reply, and with it the engine's work.
    """
    clock = asyncio.get_running_loop().time
    changed = asyncio.Event()
    producing = asyncio.create_task(_produce(reply, shaper, changed.set))
    try:
        while not shaper.done:
            now = clock()
            payload = shaper.take(now)
            if payload is not None:
                await write(payload)
                continue
            due = shaper.due()
            if due is None:
                changed.clear()
                await changed.wait()
            else:
                await asyncio.sleep(due - now)
        return await producing
    finally:
        producing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await producing


async def _produce(reply: Callable[[], Awaitable[Reply]], shaper: ResponseShaper, changed: Callable[[], None]) -> int:
    """Feed the shaper; whatever goes wrong, the response ends."""
    status = 500
    try:
        produced = await reply()
        status = produced.status
        shaper.head(Head(status=status, headers=[Header(name="content-type", value=produced.content_type)]))
        if isinstance(produced.body, bytes):
            shaper.body(produced.body)
        else:
            try:
                async with contextlib.aclosing(produced.body) as events:
                    async for event in events:
                        shaper.body(event.encode("utf-8"))
                        changed()
                        # While vLLM has output waiting, its generator never suspends; others must get their turn.
                        await asyncio.sleep(0)
            except Exception:
                status = 500
                error = INTERNAL_ERROR.reply().body
                assert isinstance(error, bytes)
                shaper.body(b"data: " + error + b"\n\n")
    finally:
        shaper.end(End())
        changed()
    return status
