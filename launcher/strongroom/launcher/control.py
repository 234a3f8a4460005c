"""The launcher's side of the Unix socket: what front ends may ask of it."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from strongroom.launcher.keyring import Admission, KeyRing
from strongroom.launcher.metrics import OUTCOMES, Metrics
from strongroom.launcher.rounds import Rounds
from strongroom.protocol.control.control_pb2 import (
    AdmitRequest,
    AdmitResponse,
    ConfigureRequest,
    EngineDescription,
    Pulse,
    PulseAnswer,
    Settings,
)
from strongroom.protocol.control.control_pb2 import KeyRing as KeyRingMessage
from strongroom.protocol.control.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server
from strongroom.protocol.errors import MalformedNonce
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle, AttestationRequest
from strongroom.protocol.v1.strongroom_pb2_grpc import AttestationServicer, add_AttestationServicer_to_server

Context = grpc.aio.ServicerContext[Any, Any]

_VERDICTS = {
    Admission.FRESH: AdmitResponse.FRESH,
    Admission.REPLAY: AdmitResponse.REPLAY,
    Admission.FULL: AdmitResponse.FULL,
    Admission.UNKNOWN_KEY: AdmitResponse.UNKNOWN_KEY,
}


@dataclasses.dataclass
class Control:
    """What the socket serves. `attached` takes an engine's description and returns the model's digest (32 bytes)."""

    settings: Settings
    ring: KeyRing
    metrics: Metrics
    padding: str
    tick_ms: int
    attached: Callable[[EngineDescription], Awaitable[bytes]]
    beaten: Callable[[Pulse], None]
    rounds: Callable[[], Rounds | None]

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()

    def keys_changed(self) -> None:
        """Send the ring to every front end again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def serve(self, path: str) -> grpc.aio.Server:
        """Serve on the Unix socket at `path`, whose folder only this user can enter."""
        server = grpc.aio.server()
        add_ControlServicer_to_server(_ControlService(self), server)
        add_AttestationServicer_to_server(_AttestationService(self.rounds), server)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        return server

    async def key_rings(self, model_digest: bytes) -> AsyncIterator[KeyRingMessage]:
        """The ring now, and after each change."""
        while True:
            changed = self._changed
            yield KeyRingMessage(
                secrets=self.ring.secrets(),
                retired_key_ids=self.ring.retired_key_ids(),
                model_digest=model_digest,
                padding=self.padding,
                tick_ms=self.tick_ms,
            )
            await changed.wait()


class _ControlService(ControlServicer):
    def __init__(self, control: Control) -> None:
        self._control = control

    async def Configure(self, request: ConfigureRequest, context: Context) -> Settings:  # noqa: N802
        return self._control.settings

    async def Attach(self, request: EngineDescription, context: Context) -> AsyncIterator[KeyRingMessage]:  # noqa: N802
        model_digest = await self._control.attached(request)
        async for ring in self._control.key_rings(model_digest):
            yield ring

    async def Admit(self, request: AdmitRequest, context: Context) -> AdmitResponse:  # noqa: N802
        return AdmitResponse(verdict=_VERDICTS[self._control.ring.admit(request.replay_id, request.key_id)])

    async def Beat(self, request: Pulse, context: Context) -> PulseAnswer:  # noqa: N802
        metrics = self._control.metrics
        metrics.open_requests.set(request.open_requests)
        metrics.engine_requests.labels("running").set(request.engine_running)
        metrics.engine_requests.labels("waiting").set(request.engine_waiting)
        for outcome in OUTCOMES:
            metrics.requests.labels(outcome).inc(request.ended.get(outcome, 0))
        self._control.beaten(request)
        return PulseAnswer()


class _AttestationService(AttestationServicer):
    def __init__(self, rounds: Callable[[], Rounds | None]) -> None:
        self._rounds = rounds

    async def GetAttestation(self, request: AttestationRequest, context: Context) -> AttestationBundle:  # noqa: N802
        rounds = self._rounds()
        if rounds is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the engine is still starting: try again later")
        try:
            return await rounds.bundle(request.nonce)
        except MalformedNonce as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception:
            # Front ends pass this on to anybody who asks.
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no evidence right now: try again later")
