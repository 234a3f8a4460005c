"""The link to the launcher: whatever is not a clear yes keeps a request out."""

import os
import pathlib
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from strongroom.protocol.control.control_pb2 import (
    AdmitRequest,
    AdmitResponse,
    ConfigureRequest,
    EngineDescription,
    KeyRing,
    Pulse,
    PulseAnswer,
    Settings,
)
from strongroom.protocol.control.control_pb2_grpc import ControlServicer, add_ControlServicer_to_server
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.request import PendingRequest, RequestOpener, seal
from strongroom.protocol.v1.strongroom_pb2 import InferenceRequest
from strongroom.worker.link import Link

KEY = IdentityKey.generate(lambda size: bytes(range(size)))


class FakeControl(ControlServicer):
    """Stands for the launcher."""

    def __init__(self) -> None:
        self.verdict: Any = AdmitResponse.FRESH
        self.asked: list[AdmitRequest] = []
        self.pulses: list[Pulse] = []

    async def Configure(self, request: ConfigureRequest, context: Any) -> Settings:  # noqa: N802
        return Settings(served_model_name="tiny")

    async def Attach(self, request: EngineDescription, context: Any) -> AsyncIterator[KeyRing]:  # noqa: N802
        for secret in (b"one", b"two"):
            yield KeyRing(secrets=[secret, request.name.encode()])

    async def Admit(self, request: AdmitRequest, context: Any) -> AdmitResponse:  # noqa: N802
        self.asked.append(request)
        return AdmitResponse(verdict=self.verdict)

    async def Beat(self, request: Pulse, context: Any) -> PulseAnswer:  # noqa: N802
        self.pulses.append(request)
        return PulseAnswer()


@pytest.fixture
def control() -> FakeControl:
    return FakeControl()


@pytest.fixture
async def link(control: FakeControl) -> AsyncIterator[Link]:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "control"
        server = grpc.aio.server()
        add_ControlServicer_to_server(control, server)
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        made = Link(str(path))
        yield made
        await made._channel.close()
        await server.stop(0)


def pending() -> PendingRequest:
    exchange = seal([KEY.public], InferenceRequest(path="/secret"), random=os.urandom)
    return RequestOpener([KEY]).open(exchange.sealed)


async def test_a_fresh_request_is_admitted_by_its_replay_id_and_key(link: Link, control: FakeControl) -> None:
    request = pending()
    assert (await link.admit(request)).request.path == "/secret"
    assert control.asked == [AdmitRequest(replay_id=request.replay_id, key_id=KEY.public.key_id)]


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (AdmitResponse.REPLAY, WireCode.REPLAY),
        (AdmitResponse.FULL, WireCode.REPLAY_SET_FULL),
        (AdmitResponse.UNKNOWN_KEY, WireCode.UNKNOWN_KEY),
        (AdmitResponse.UNSPECIFIED, WireCode.REPLAY),
        (99, WireCode.REPLAY),
    ],
)
async def test_every_other_verdict_keeps_it_out(link: Link, control: FakeControl, verdict: Any, code: WireCode) -> None:
    control.verdict = verdict
    with pytest.raises(RequestRefused) as refused:
        await link.admit(pending())
    assert refused.value.code is code


async def test_settings_rings_and_pulses_pass(link: Link, control: FakeControl) -> None:
    assert (await link.configure()).served_model_name == "tiny"
    rings = [ring async for ring in link.key_rings(EngineDescription(name="vllm"))]
    assert [list(ring.secrets) for ring in rings] == [[b"one", b"vllm"], [b"two", b"vllm"]]
    await link.beat(Pulse(serving=True))
    assert control.pulses == [Pulse(serving=True)]
