"""Sending a response: it ends whole, broken by an error that is sealed too, or not at all when the client has gone."""

import asyncio
import dataclasses
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.request import RequestOpener, seal
from strongroom.protocol.secret import Secret
from strongroom.protocol.shaper import ResponseShaper
from strongroom.protocol.v1.strongroom_pb2 import End, Head, InferenceRequest
from strongroom.worker.endpoints import Reply
from strongroom.worker.stream import send

NONE = StreamShape("none", 1, 0)


@dataclasses.dataclass
class Exchange:
    """Both ends of one request, without a network between them."""

    shape: StreamShape = NONE

    def __post_init__(self) -> None:
        key = IdentityKey(Secret(hashlib.shake_256(b"key").digest(IdentityKey.SECRET_BYTES)))
        client = seal([key.public], InferenceRequest(), random=lambda size: bytes(range(size)))
        admitted = RequestOpener([key]).open(client.sealed).admit(True)
        sealer = admitted.respond(bytes(32))
        self.opener = client.response()
        self.shaper = ResponseShaper(sealer, self.shape, asyncio.get_running_loop().time())
        self.payloads: list[bytes] = []
        self.events: list[Head | bytes | End] = []
        self.sent = asyncio.Event()

    async def write(self, payload: bytes) -> None:
        self.payloads.append(payload)
        self.events += self.opener.receive(payload)
        self.sent.set()

    async def send(self, reply: Callable[[], Awaitable[Reply]]) -> int:
        return await send(reply, self.shaper, self.write)

    @property
    def body(self) -> bytes:
        return b"".join(event for event in self.events if isinstance(event, bytes))


def replying(reply: Reply) -> Callable[[], Awaitable[Reply]]:
    async def produce() -> Reply:
        return reply

    return produce


async def stream(*texts: str, failure: BaseException | None = None) -> AsyncIterator[str]:
    for text in texts:
        yield text
        await asyncio.sleep(0.01)
    if failure is not None:
        raise failure


SHAPES = [NONE, StreamShape("bucket", 256, 5), StreamShape("constant", 64, 5), StreamShape("constant", 256, 5)]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.padding)
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_response_arrives_whole_in_every_shape(shape: StreamShape, streamed: bool) -> None:
    exchange = Exchange(shape)
    reply = Reply(200, stream("é", "x" * 300, "end") if streamed else "é".encode() + b"x" * 300 + b"end")
    assert await exchange.send(replying(reply)) == 200
    exchange.opener.finish()
    head = exchange.events[0]
    assert isinstance(head, Head)
    assert (head.status, head.headers[0].name, head.headers[0].value) == (200, "content-type", reply.content_type)
    assert exchange.body == "é".encode() + b"x" * 300 + b"end"


async def test_constant_shape_sends_equal_records_also_while_the_reply_is_thought_about() -> None:
    exchange = Exchange(StreamShape("constant", 128, 10))

    async def slow() -> Reply:
        await asyncio.sleep(0.1)
        return Reply(200, b"{}")

    await exchange.send(slow)
    exchange.opener.finish()
    assert len(exchange.payloads) >= 5
    assert {len(payload) for payload in exchange.payloads[1:]} == {128 + 16}
    assert len(exchange.payloads[0]) == 48 + 128 + 16


async def test_pieces_of_a_stream_leave_as_they_come() -> None:
    exchange = Exchange()
    released = asyncio.Event()

    async def body() -> AsyncIterator[str]:
        yield "first"
        await released.wait()
        yield "second"

    sending = asyncio.create_task(exchange.send(replying(Reply(200, body()))))
    await asyncio.wait_for(exchange.sent.wait(), 3)
    assert exchange.body == b"first"
    released.set()
    await sending
    assert exchange.body == b"firstsecond"


@pytest.mark.parametrize("failure", [RuntimeError("canary"), ValueError("canary"), UnicodeError("canary")])
async def test_an_error_within_a_stream_ends_it_with_a_sealed_error_without_its_text(failure: Exception) -> None:
    exchange = Exchange()
    status = await exchange.send(replying(Reply(200, stream("data: 1\n\n", failure=failure))))
    assert status == 500
    exchange.opener.finish()
    assert b"canary" not in exchange.body
    first, last, _ = exchange.body.split(b"\n\n")
    assert first == b"data: 1"
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == 500


async def test_a_stream_that_is_no_unicode_ends_with_a_sealed_error() -> None:
    exchange = Exchange()
    assert await exchange.send(replying(Reply(200, stream("\ud800")))) == 500
    exchange.opener.finish()
    assert b"internal error" in exchange.body


class Engine:
    """Work that notices when it is cancelled."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.ended = asyncio.Event()

    async def work(self) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()

    async def reply(self) -> Reply:
        await self.work()
        raise AssertionError("unreachable")

    async def body(self) -> AsyncIterator[str]:
        try:
            yield "first"
            await self.work()
        finally:
            self.ended.set()


@pytest.mark.parametrize("shape", SHAPES[:3], ids=lambda shape: shape.kind)
@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_the_sending_cancels_the_engines_work(shape: StreamShape, streamed: bool) -> None:
    exchange, engine = Exchange(shape), Engine()
    reply = replying(Reply(200, engine.body())) if streamed else engine.reply
    sending = asyncio.create_task(exchange.send(reply))
    await asyncio.wait_for(engine.started.wait(), 3)
    assert not engine.ended.is_set()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert engine.ended.is_set()


async def test_a_record_that_cannot_be_written_cancels_the_engines_work() -> None:
    """At once, not when the generator is collected some day."""
    exchange, engine = Exchange(), Engine()

    async def fail(_: bytes) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await send(replying(Reply(200, engine.body())), exchange.shaper, fail)
    await asyncio.wait_for(engine.ended.wait(), 3)
