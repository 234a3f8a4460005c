"""The front end on a real gRPC server: each refusal is one code of the closed list, and no text of ours leaves it."""

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import os
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import grpc
import grpc.aio
import pytest
from fake_engine import Answered, FakeServing
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from strongroom.protocol import request as sealing
from strongroom.protocol.address import Address
from strongroom.protocol.control.control_pb2 import KeyRing
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.request import AdmittedRequest, ClientExchange, PendingRequest, seal
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import (
    AttestationRequest,
    End,
    Envelope,
    Head,
    InferenceRequest,
    SealedRecord,
    SealedRequest,
    StreamProfile,
)
from strongroom.worker.engine import Engine
from strongroom.worker.service import FrontEnd

CHAT = "/v1/chat/completions"
BODY = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "canary-prompt"}]}).encode()
DIGEST = bytes(range(32))
ADVICE = {code.advice for code in WireCode}


def identity(name: str) -> IdentityKey:
    return IdentityKey(Secret(hashlib.shake_256(name.encode()).digest(IdentityKey.SECRET_BYTES)))


CURRENT, NEXT, RETIRED, STRANGER = (identity(name) for name in ("current", "next", "retired", "stranger"))


class FakeLink:
    """Stands for the launcher: a replay set, and whatever goes wrong with it."""

    def __init__(self) -> None:
        self.admitted: list[bytes] = []
        self.refusal: WireCode | None = None
        self.failure: Exception | None = None
        self.bundle = b"bundle of "

    async def admit(self, pending: PendingRequest) -> AdmittedRequest:
        if self.failure is not None:
            raise self.failure
        if self.refusal is not None:
            raise RequestRefused(self.refusal)
        fresh = pending.replay_id not in self.admitted
        self.admitted.append(pending.replay_id)
        return pending.admit(fresh)

    async def attestation(self, request: bytes) -> bytes:
        if self.failure is not None:
            raise self.failure
        return self.bundle + request


def rpc_error(status: grpc.StatusCode, details: str) -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(status, grpc.aio.Metadata(), grpc.aio.Metadata(), details)


@dataclasses.dataclass
class Outcome:
    """How one call ended."""

    payloads: list[bytes]
    status: grpc.StatusCode
    details: str
    trailers: dict[str, Any]

    def refused_with(self, code: WireCode) -> bool:
        """Exactly this code, its fixed text, and nothing else."""
        ours = {name: value for name, value in self.trailers.items() if not name.startswith("grpc-")}
        assert (self.payloads, ours) == ([], {"strongroom-error": code.code})
        assert (self.status.name, self.details) == (code.grpc_status, code.advice)
        return True


class Served:
    """A front end, its surroundings, and a client of it."""

    def __init__(self, engine: Engine, serving: FakeServing) -> None:
        self.serving = serving
        self.link = FakeLink()
        link: Any = self.link
        self.front_end = FrontEnd(engine, link, max_open_requests=2)
        self.take()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = Address("127.0.0.1", probe.getsockname()[1])
        self.channel = grpc.aio.insecure_channel(str(self.address), options=[("grpc.max_send_message_length", -1)])
        self.infer: Any = self.channel.unary_stream("/strongroom.v1.Inference/Infer")
        self.attest: Any = self.channel.unary_unary("/strongroom.v1.Attestation/GetAttestation")

    def take(self, *keys: IdentityKey, padding: str = "none", tick_ms: int = 0) -> None:
        self.front_end.take(
            KeyRing(
                secrets=[key.secret.expose() for key in keys or (CURRENT, NEXT)],
                retired_key_ids=[RETIRED.public.key_id],
                model_digest=DIGEST,
                padding=padding,
                tick_ms=tick_ms,
            )
        )

    async def call(self, raw: bytes) -> Outcome:
        call = self.infer(raw)
        payloads = []
        async with asyncio.timeout(20):
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for message in call:
                    payloads.append(SealedRecord.FromString(message).payload)
        trailers = dict(await call.trailing_metadata() or ())
        return Outcome(payloads, await call.code(), await call.details() or "", trailers)

    async def ask(self, **fields: Any) -> tuple[int, bytes]:
        """Status and body of a request that is answered."""
        exchange = sealed(**fields)
        outcome = await self.call(exchange.sealed)
        assert (outcome.status, outcome.details) == (grpc.StatusCode.OK, "")
        return opened(exchange, outcome.payloads)

    def ended(self) -> dict[str, int]:
        return dict(self.front_end.pulse().ended)


def sealed(keys: Sequence[IdentityKey] = (CURRENT,), **fields: Any) -> ClientExchange:
    message = InferenceRequest(**({"path": CHAT, "body": BODY} | fields))
    return seal([key.public for key in keys], message, random=os.urandom)


def opened(exchange: ClientExchange, payloads: list[bytes]) -> tuple[int, bytes]:
    opener = exchange.response()
    events: list[Head | bytes | End] = [event for payload in payloads for event in opener.receive(payload)]
    opener.finish()
    head = events[0]
    assert isinstance(head, Head)
    return head.status, b"".join(event for event in events if isinstance(event, bytes))


@pytest.fixture
async def served(engine: Engine, serving: FakeServing) -> AsyncIterator[Served]:
    made = Served(engine, serving)
    server = await made.front_end.serve(made.address)
    yield made
    await made.channel.close()
    await server.stop(0)


class Hanging:
    """An engine that is busy until it is let go."""

    def __init__(self, serving: FakeServing) -> None:
        self.started = asyncio.Event()
        self.go = asyncio.Event()
        self.cancelled = asyncio.Event()
        serving.create_chat_completion = self._work  # type: ignore[method-assign]

    async def _work(self, _: Any) -> Answered:
        self.started.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Answered()


# Requests that are answered -------------------------------------------------------------------------------------------


async def test_a_sealed_request_gets_a_sealed_answer(served: Served) -> None:
    for keys in ([CURRENT], [NEXT], [STRANGER, NEXT]):
        assert await served.ask(keys=keys) == (200, b'{"said":"hello"}')
    assert len(served.serving.requests) == 3
    assert served.ended() == {"ok": 3}


async def test_what_is_wrong_with_an_opened_request_is_told_sealed(served: Served) -> None:
    status, body = await served.ask(path="/v1/completions")
    assert (status, json.loads(body)["error"]["code"]) == (404, 404)
    served.serving.result = RuntimeError("canary")
    status, body = await served.ask()
    assert status == 500
    assert b"canary" not in body
    assert served.ended() == {"client-error": 1, "server-error": 1}


@pytest.mark.parametrize(
    "profile",
    [
        StreamProfile(padding="rot13"),
        StreamProfile(padding="bucket-1"),
        StreamProfile(padding="bucket-9999999"),
        StreamProfile(padding="constant-256"),
        StreamProfile(padding="none", tick_ms=1001),
        StreamProfile(tick_ms=2**32 - 1),
    ],
    ids=str,
)
async def test_a_bad_stream_profile_is_a_sealed_400(served: Served, profile: StreamProfile) -> None:
    status, body = await served.ask(stream=profile)
    assert (status, json.loads(body)["error"]["param"]) == (400, "stream")
    assert served.serving.requests == []


async def test_the_answer_has_the_stronger_of_both_shapes(served: Served) -> None:
    exchange = sealed(stream=StreamProfile(padding="constant-512", tick_ms=5))
    payloads = (await served.call(exchange.sealed)).payloads
    assert {len(payload) for payload in payloads[1:]} | {len(payloads[0]) - 48} == {512 + 16}
    served.take(padding="bucket-1024", tick_ms=1)
    exchange = sealed(stream=StreamProfile(padding="bucket-64"))
    payloads = (await served.call(exchange.sealed)).payloads
    assert all((len(payload) - 16 - 48 * (i == 0)) % 1024 == 0 for i, payload in enumerate(payloads))
    assert opened(exchange, payloads)[0] == 200


async def test_two_answers_to_one_body_share_no_bytes(served: Served) -> None:
    one, other = [(await served.call(sealed().sealed)).payloads for _ in range(2)]
    assert one[0][:16] == other[0][:16] == CURRENT.public.key_id
    assert one[0][16:48] != other[0][16:48]


# Requests that are refused --------------------------------------------------------------------------------------------


def _flipped(position: int) -> Callable[[], bytes]:
    def make() -> bytes:
        raw = bytearray(sealed().sealed)
        raw[position] ^= 1
        return bytes(raw)

    return make


def _spliced() -> bytes:
    """The envelope of one request on the ciphertext of another."""
    one, other = (SealedRequest.FromString(sealed().sealed) for _ in range(2))
    return SealedRequest(envelopes=one.envelopes, ciphertext=other.ciphertext).SerializeToString()


def _with(*envelopes: Envelope) -> bytes:
    return SealedRequest(envelopes=envelopes, ciphertext=bytes(2000)).SerializeToString()


MALFORMED: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "junk": lambda: b"\xff\xff\xff",
    "no envelope": _with,
    "a short envelope": lambda: _with(Envelope(key_id=CURRENT.public.key_id, sealed=b"x")),
    "a short key id": lambda: _with(Envelope(key_id=b"x", sealed=bytes(1168))),
    "nine envelopes": lambda: _with(*(Envelope(key_id=bytes([i]) * 16, sealed=b"x") for i in range(9))),
    "truncated": lambda: sealed().sealed[:-1],
    "a changed envelope": _flipped(200),
    "a changed ciphertext": _flipped(-1),
    "spliced": _spliced,
    "two envelopes to one worker": lambda: sealed([CURRENT, NEXT]).sealed,
    "a live and a retired key of one worker": lambda: sealed([CURRENT, RETIRED]).sealed,
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_what_does_not_open_is_malformed_and_reaches_nothing(served: Served, what: str) -> None:
    assert (await served.call(MALFORMED[what]())).refused_with(WireCode.MALFORMED)
    assert served.link.admitted == []
    assert served.serving.requests == []
    assert served.ended() == {"refused": 1}


@pytest.mark.parametrize("key", [STRANGER, RETIRED])
async def test_a_key_that_is_not_held_is_unknown(served: Served, key: IdentityKey) -> None:
    assert (await served.call(sealed([key]).sealed)).refused_with(WireCode.UNKNOWN_KEY)
    assert served.link.admitted == []


async def test_a_new_ring_replaces_the_old_one_at_once(served: Served) -> None:
    served.take(NEXT)
    assert (await served.call(sealed([CURRENT]).sealed)).refused_with(WireCode.UNKNOWN_KEY)
    assert (await served.ask(keys=[NEXT]))[0] == 200


async def test_a_request_is_answered_once(served: Served) -> None:
    exchange = sealed()
    assert opened(exchange, (await served.call(exchange.sealed)).payloads)[0] == 200
    assert (await served.call(exchange.sealed)).refused_with(WireCode.REPLAY)
    assert len(served.serving.requests) == 1


async def test_of_many_copies_at_a_time_one_is_answered(served: Served) -> None:
    exchange = sealed()
    served.front_end._max_open = 50
    outcomes = await asyncio.gather(*(served.call(exchange.sealed) for _ in range(10)))
    assert [outcome.status for outcome in outcomes].count(grpc.StatusCode.OK) == 1
    assert len(served.serving.requests) == 1


@pytest.mark.parametrize("code", [WireCode.REPLAY_SET_FULL, WireCode.UNKNOWN_KEY, WireCode.REPLAY])
async def test_what_the_launcher_refuses_reaches_no_engine(served: Served, code: WireCode) -> None:
    served.link.refusal = code
    assert (await served.call(sealed().sealed)).refused_with(code)
    assert served.serving.requests == []


async def test_a_request_above_the_limit_is_too_large(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = sealed().sealed
    monkeypatch.setattr(sealing, "MAX_SEALED_REQUEST_BYTES", len(raw) - 1)
    assert (await served.call(raw)).refused_with(WireCode.TOO_LARGE)


async def test_more_open_requests_than_the_limit_are_overloaded(served: Served) -> None:
    hanging = Hanging(served.serving)
    first, second = (asyncio.create_task(served.ask()) for _ in range(2))
    await asyncio.wait_for(hanging.started.wait(), 3)
    await asyncio.sleep(0.1)
    assert (await served.call(sealed().sealed)).refused_with(WireCode.OVERLOADED)
    assert served.front_end.pulse().open_requests == 2
    hanging.go.set()
    assert {(await first)[0], (await second)[0]} == {200}
    assert (await served.ask())[0] == 200


async def test_before_the_first_ring_it_is_not_ready(served: Served) -> None:
    served.front_end._opener = None
    assert (await served.call(sealed().sealed)).refused_with(WireCode.NOT_READY)


async def test_a_drained_front_end_refuses_and_lets_open_requests_finish(served: Served) -> None:
    hanging = Hanging(served.serving)
    open_one = asyncio.create_task(served.ask())
    await asyncio.wait_for(hanging.started.wait(), 3)
    draining = asyncio.create_task(served.front_end.drain(10))
    await asyncio.sleep(0.05)
    assert not draining.done()
    assert (await served.call(sealed().sealed)).refused_with(WireCode.DRAINING)
    assert await served_health(served) == "NOT_SERVING"
    assert not served.front_end.pulse().serving
    hanging.go.set()
    assert (await open_one)[0] == 200
    await asyncio.wait_for(draining, 3)


async def test_draining_does_not_wait_longer_than_it_was_told(served: Served) -> None:
    hanging = Hanging(served.serving)
    open_one = asyncio.create_task(served.ask())
    await asyncio.wait_for(hanging.started.wait(), 3)
    await asyncio.wait_for(served.front_end.drain(0.05), 3)
    assert not open_one.done()
    hanging.go.set()
    await open_one


async def test_a_client_that_goes_away_cancels_the_engines_work(served: Served) -> None:
    hanging = Hanging(served.serving)
    call = served.infer(sealed().sealed)
    reading = asyncio.create_task(anext(aiter(call)))
    await asyncio.wait_for(hanging.started.wait(), 3)
    assert not hanging.cancelled.is_set()
    call.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await asyncio.wait_for(hanging.cancelled.wait(), 3)
    await asyncio.sleep(0.05)
    assert served.ended() == {"cancelled": 1}
    assert served.front_end.pulse().open_requests == 0


# Exceptions -----------------------------------------------------------------------------------------------------------


async def test_a_launcher_that_does_not_answer_is_not_ready(served: Served) -> None:
    served.link.failure = rpc_error(grpc.StatusCode.UNAVAILABLE, "canary")
    assert (await served.call(sealed().sealed)).refused_with(WireCode.NOT_READY)


async def test_a_defect_during_admission_tells_nothing(served: Served) -> None:
    served.link.failure = ValueError("canary")
    outcome = await served.call(sealed().sealed)
    assert outcome.status is not grpc.StatusCode.OK
    assert "canary" not in outcome.details
    assert "ValueError" not in outcome.details


@pytest.mark.parametrize("error", [ValueError("canary \ud800"), RuntimeError("canary \ud800")])
async def test_an_error_that_cannot_be_written_as_json_tells_nothing_in_the_clear(
    served: Served, error: Exception
) -> None:
    served.serving.result = error
    exchange = sealed()
    outcome = await served.call(exchange.sealed)
    assert outcome.details in {"", *ADVICE}
    assert opened(exchange, outcome.payloads)[0] in {400, 500}


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (rpc_error(grpc.StatusCode.UNKNOWN, "Unexpected <class 'KeyError'>: canary"), None),
        (ValueError("canary"), None),
        (rpc_error(grpc.StatusCode.UNAVAILABLE, "try again later"), grpc.StatusCode.UNAVAILABLE),
        (rpc_error(grpc.StatusCode.INVALID_ARGUMENT, "a nonce has"), grpc.StatusCode.INVALID_ARGUMENT),
    ],
    ids=["defect in the launcher", "defect in the front end", "later", "bad nonce"],
)
async def test_attestation_that_fails_tells_no_text_of_a_defect(
    served: Served, failure: Exception, status: grpc.StatusCode | None
) -> None:
    served.link.failure = failure
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await served.attest(AttestationRequest(nonce=bytes(32)).SerializeToString())
    assert "canary" not in (error.value.details() or "")
    if status is not None:
        assert error.value.code() is status


async def test_attestation_is_passed_through_byte_for_byte(served: Served) -> None:
    assert await served.attest(b"\x0a\x03abc") == b"bundle of \x0a\x03abc"


# Health and reflection ------------------------------------------------------------------------------------------------


async def served_health(served: Served, service: str = "") -> str:
    stub = health_pb2_grpc.HealthStub(served.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


@pytest.mark.parametrize(
    "service", ["", "strongroom.v1.Inference", "strongroom.v1.Attestation", "grpc.health.v1.Health"]
)
async def test_each_service_is_serving(served: Served, service: str) -> None:
    assert await served_health(served, service) == "SERVING"


async def test_a_service_that_is_not_there_is_not_found(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await served_health(served, "vllm.Engine")
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


async def test_reflection_lists_the_public_services_and_no_others(served: Served) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(served.channel)
    call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
    answer = await anext(aiter(call))
    call.cancel()
    assert {service.name for service in answer.list_services_response.service} == {
        "strongroom.v1.Inference",
        "strongroom.v1.Attestation",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_other_methods_do_not_exist(served: Served) -> None:
    other: Any = served.channel.unary_unary("/strongroom.control.Control/Configure")
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await other(b"")
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
