"""The front end's side of the Unix socket to the launcher."""

from collections.abc import AsyncIterator

import grpc.aio

from strongroom.protocol.control.control_pb2 import (
    AdmitRequest,
    AdmitResponse,
    ConfigureRequest,
    EngineDescription,
    KeyRing,
    Pulse,
    Settings,
)
from strongroom.protocol.control.control_pb2_grpc import ControlStub
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.limits import MAX_BUNDLE_BYTES
from strongroom.protocol.request import AdmittedRequest, PendingRequest

_GET_ATTESTATION = "/strongroom.v1.Attestation/GetAttestation"
_REFUSALS = {AdmitResponse.FULL: WireCode.REPLAY_SET_FULL, AdmitResponse.UNKNOWN_KEY: WireCode.UNKNOWN_KEY}


class Link:
    """A connection to the launcher. Its loss means that the launcher is gone."""

    def __init__(self, path: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{path}", options=[("grpc.max_receive_message_length", MAX_BUNDLE_BYTES), ("grpc.enable_retries", 0)]
        )
        self._stub = ControlStub(self._channel)
        # Bytes through: the front end has no business in a bundle.
        self._attestation: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(_GET_ATTESTATION)

    async def configure(self) -> Settings:
        """What this front end is to run."""
        return await self._stub.Configure(ConfigureRequest())

    async def key_rings(self, description: EngineDescription) -> AsyncIterator[KeyRing]:
        """Say what runs; get the key ring, now and after each change."""
        async for ring in self._stub.Attach(description):
            yield ring

    async def admit(self, pending: PendingRequest) -> AdmittedRequest:
        """Test and insert the request's replay id; raises `RequestRefused` unless it is new."""
        answer = await self._stub.Admit(AdmitRequest(replay_id=pending.replay_id, key_id=pending.key_id))
        if answer.verdict in _REFUSALS:
            raise RequestRefused(_REFUSALS[answer.verdict])
        return pending.admit(answer.verdict == AdmitResponse.FRESH)

    async def beat(self, pulse: Pulse) -> None:
        """Show that this front end lives."""
        await self._stub.Beat(pulse)

    async def attestation(self, request: bytes) -> bytes:
        """Pass `GetAttestation` on; raises `grpc.aio.AioRpcError` with the launcher's status."""
        return await self._attestation(request)
