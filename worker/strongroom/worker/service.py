"""The public gRPC services of a front end: Inference, Attestation, health and reflection."""

import asyncio
import collections
import os
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health
from grpc_reflection.v1alpha import reflection

from strongroom.protocol import limits
from strongroom.protocol.address import Address
from strongroom.protocol.control.control_pb2 import KeyRing, Pulse
from strongroom.protocol.errors import BadProfile, RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.request import AdmittedRequest, RequestOpener
from strongroom.protocol.response import RESPONSE_NONCE_BYTES
from strongroom.protocol.secret import Secret
from strongroom.protocol.shaper import ResponseShaper
from strongroom.protocol.v1 import strongroom_pb2
from strongroom.protocol.v1.strongroom_pb2 import SealedRecord
from strongroom.worker.endpoints import Refused, Reply, answer
from strongroom.worker.engine import Engine
from strongroom.worker.link import Link
from strongroom.worker.plugin import EngineLoad
from strongroom.worker.stream import send

Context = grpc.aio.ServicerContext[bytes, bytes]

_INFERENCE = strongroom_pb2.DESCRIPTOR.services_by_name["Inference"].full_name
_ATTESTATION = strongroom_pb2.DESCRIPTOR.services_by_name["Attestation"].full_name
_IDLE_MS = 10 * 60 * 1000
# gRPC refuses larger messages itself, without our trailer; the exact limit is checked when a request is opened.
_MAX_MESSAGE_BYTES = limits.MAX_SEALED_REQUEST_BYTES + 1024 * 1024


class FrontEnd:
    """Serves sealed requests. Its only state are counters and the key ring that the launcher sent last."""

    def __init__(self, engine: Engine, link: Link, max_open_requests: int) -> None:
        self._engine = engine
        self._link = link
        self._max_open = max_open_requests
        self._open: set[asyncio.Task[Any]] = set()
        self._ended: collections.Counter[str] = collections.Counter()
        self._opener: RequestOpener | None = None
        self._model_digest = b""
        self._least_shape = StreamShape("none", 1, 0)
        self._draining = False
        self._health = health.HealthServicer()

    def take(self, ring: KeyRing) -> None:
        """Use the keys of `ring` from now on, and no others."""
        keys = [IdentityKey(Secret(secret)) for secret in ring.secrets]
        self._opener = RequestOpener(keys, ring.retired_key_ids)
        self._model_digest = ring.model_digest
        self._least_shape = StreamShape.parse(ring.padding, ring.tick_ms)

    async def serve(self, address: Address) -> grpc.aio.Server:
        """Listen on `address`; other front ends may listen there too."""
        server = grpc.aio.server(
            options=[
                ("grpc.so_reuseport", 1),
                # Above our own limit, so that who exceeds it is told so.
                ("grpc.max_concurrent_streams", 2 * self._max_open + 128),
                ("grpc.max_connection_idle_ms", _IDLE_MS),
                # A peer that is gone is noticed; one that pings too often is cut off.
                ("grpc.keepalive_time_ms", 60_000),
                ("grpc.keepalive_timeout_ms", 20_000),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
                ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", limits.MAX_BUNDLE_BYTES),
            ]
        )
        # Requests and records are handled as bytes, so that what does not parse gets our own error code.
        inference: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_stream_rpc_method_handler(self._infer)
        attestation: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._get_attestation)
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(_INFERENCE, {"Infer": inference}),
                grpc.method_handlers_generic_handler(_ATTESTATION, {"GetAttestation": attestation}),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (_INFERENCE, _ATTESTATION, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
        reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)
        server.add_insecure_port(str(address))
        await server.start()
        for name in ("", *names):
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVING)
        return server

    async def drain(self, seconds: float) -> None:
        """Take no new requests; give the open ones `seconds` to finish."""
        self._draining = True
        await self._health.enter_graceful_shutdown()
        if self._open:
            await asyncio.wait(self._open, timeout=seconds)

    def pulse(self) -> Pulse:
        """What the launcher is told every second."""
        ended, self._ended = self._ended, collections.Counter()
        return Pulse(
            serving=not self._draining,
            open_requests=len(self._open),
            engine_running=EngineLoad.running,
            engine_waiting=EngineLoad.waiting,
            ended=ended,
        )

    async def _get_attestation(self, raw: bytes, context: Context) -> bytes:
        try:
            return await self._link.attestation(raw)
        except Exception as error:
            # What is wrong with a nonce is for the caller; any other text may be an exception's or name a path.
            if isinstance(error, grpc.aio.AioRpcError) and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                await context.abort(error.code(), error.details() or "")
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no attestation right now: try again later")

    async def _infer(self, raw: bytes, context: Context) -> None:
        refusal = await self._handle(raw, context)
        if refusal is not None:
            await context.abort(
                grpc.StatusCode[refusal.grpc_status],
                refusal.advice,
                trailing_metadata=(("strongroom-error", refusal.code),),
            )

    async def _handle(self, raw: bytes, context: Context) -> WireCode | None:
        """Answer one request; gives the code to refuse it with, if it was not opened."""
        task = asyncio.current_task()
        assert task is not None
        outcome = "cancelled"
        try:
            if self._draining:
                raise RequestRefused(WireCode.DRAINING)
            if len(self._open) >= self._max_open:
                raise RequestRefused(WireCode.OVERLOADED)
            self._open.add(task)
            status = await self._respond(await self._admit(raw), context)
            outcome = "ok" if status < 400 else "client-error" if status < 500 else "server-error"
            return None
        except RequestRefused as error:
            outcome = "refused"
            return error.code
        except Exception:
            # gRPC would send the text of an exception to the network.
            outcome = "server-error"
            return WireCode.NOT_READY
        finally:
            self._open.discard(task)
            self._ended[outcome] += 1

    async def _admit(self, raw: bytes) -> AdmittedRequest:
        if self._opener is None:
            raise RequestRefused(WireCode.NOT_READY)
        pending = self._opener.open(raw)
        try:
            return await self._link.admit(pending)
        except grpc.aio.AioRpcError as error:
            raise RequestRefused(WireCode.NOT_READY) from error

    async def _respond(self, admitted: AdmittedRequest, context: Context) -> int:
        request = admitted.request
        reply: Callable[[], Awaitable[Reply]]
        try:
            wanted = StreamShape.parse(request.stream.padding or "none", request.stream.tick_ms)
            shape = self._least_shape.stronger(wanted)

            async def reply() -> Reply:
                return await answer(self._engine, self._model_digest, request.path, request.body, os.urandom)

        except BadProfile as error:
            shape, refused = self._least_shape, Refused(400, f"stream: {error}", "stream").reply()

            async def reply() -> Reply:
                return refused

        sealer = admitted.respond(os.urandom(RESPONSE_NONCE_BYTES))
        shaper = ResponseShaper(sealer, shape, asyncio.get_running_loop().time())

        async def write(payload: bytes) -> None:
            await context.write(SealedRecord(payload=payload).SerializeToString())

        return await send(reply, shaper, write)
