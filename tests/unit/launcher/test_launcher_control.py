"""The control socket: front ends get every change of the ring, and all of them share one replay set."""

import asyncio
import os
import pathlib
import tempfile
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from bundles import NONCE, claims_document, identity

from strongroom.attestation.errors import EvidenceError
from strongroom.attestation.simulated import SimulatedAttester
from strongroom.launcher.control import Control
from strongroom.launcher.keyring import KeyRing
from strongroom.launcher.metrics import Metrics
from strongroom.launcher.rounds import Rounds
from strongroom.protocol import canonical
from strongroom.protocol.control.control_pb2 import (
    AdmitRequest,
    AdmitResponse,
    ConfigureRequest,
    EngineDescription,
    Pulse,
    Settings,
)
from strongroom.protocol.control.control_pb2_grpc import ControlStub
from strongroom.protocol.v1.strongroom_pb2 import AttestationRequest, Evidence
from strongroom.protocol.v1.strongroom_pb2_grpc import AttestationStub

DIGEST = bytes(range(32))


class Launcher:
    """A control socket with what stands behind it."""

    def __init__(self) -> None:
        self.ring = KeyRing(random=os.urandom, lifetime=100, grace=10, capacity=2)
        self.ring.start(0, 0)
        self.metrics = Metrics()
        self.described: list[EngineDescription] = []
        self.pulses: list[Pulse] = []
        self.rounds: Rounds | None = None
        self.server: grpc.aio.Server | None = None
        self.control = Control(
            settings=Settings(listen="127.0.0.1:1"),
            ring=self.ring,
            metrics=self.metrics,
            padding="bucket-256",
            tick_ms=20,
            attached=self._attached,
            beaten=self.pulses.append,
            rounds=lambda: self.rounds,
        )

    async def _attached(self, description: EngineDescription) -> bytes:
        self.described.append(description)
        return DIGEST

    def key(self) -> bytes:
        return bytes.fromhex(self.ring.claimed()[0].key_id)


@pytest.fixture
async def launcher() -> Launcher:
    return Launcher()


@pytest.fixture
async def channel(launcher: Launcher) -> AsyncIterator[grpc.aio.Channel]:
    # pytest's own folders can be too long for the address of a Unix socket.
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "control"
        launcher.server = server = await launcher.control.serve(str(path))
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            yield channel
        await server.stop(0)


async def test_a_front_end_gets_its_settings(channel: grpc.aio.Channel) -> None:
    assert (await ControlStub(channel).Configure(ConfigureRequest())).listen == "127.0.0.1:1"


async def test_every_front_end_gets_the_ring_now_and_after_each_change(
    channel: grpc.aio.Channel, launcher: Launcher
) -> None:
    async with asyncio.timeout(10):
        calls = [ControlStub(channel).Attach(EngineDescription(name="vllm")) for _ in range(2)]
        streams = [aiter(call) for call in calls]
        for stream in streams:
            ring = await anext(stream)
            assert list(ring.secrets) == launcher.ring.secrets()
            assert (ring.model_digest, ring.padding, ring.tick_ms) == (DIGEST, "bucket-256", 20)
        for now in (100, 110):
            assert launcher.ring.advance(now, now)
            launcher.control.keys_changed()
            for stream in streams:
                ring = await anext(stream)
                assert list(ring.secrets) == launcher.ring.secrets()
                assert list(ring.retired_key_ids) == launcher.ring.retired_key_ids()
        for call in calls:
            call.cancel()
    assert [description.name for description in launcher.described] == ["vllm", "vllm"]


async def test_each_outcome_of_admission_has_its_verdict(channel: grpc.aio.Channel, launcher: Launcher) -> None:
    async def admit(number: int, key: bytes) -> "AdmitResponse.Verdict":
        return (await ControlStub(channel).Admit(AdmitRequest(replay_id=bytes([number]) * 16, key_id=key))).verdict

    assert await admit(1, b"unknown") == AdmitResponse.UNKNOWN_KEY
    assert await admit(1, launcher.key()) == AdmitResponse.FRESH
    assert await admit(1, launcher.key()) == AdmitResponse.REPLAY
    assert await admit(2, launcher.key()) == AdmitResponse.FRESH
    assert await admit(3, launcher.key()) == AdmitResponse.FULL


async def test_one_of_many_admissions_of_an_id_at_a_time_is_fresh(
    channel: grpc.aio.Channel, launcher: Launcher
) -> None:
    request = AdmitRequest(replay_id=bytes(16), key_id=launcher.key())
    answers = await asyncio.gather(*(ControlStub(channel).Admit(request) for _ in range(20)))
    verdicts = [answer.verdict for answer in answers]
    assert verdicts.count(AdmitResponse.FRESH) == 1
    assert verdicts.count(AdmitResponse.REPLAY) == 19


async def test_a_pulse_counts_outcomes_of_the_closed_list_and_no_others(
    channel: grpc.aio.Channel, launcher: Launcher
) -> None:
    pulse = Pulse(serving=True, open_requests=3, engine_running=2, engine_waiting=1, ended={"ok": 4, "canary": 9})
    await ControlStub(channel).Beat(pulse)
    text = launcher.metrics.render().decode()
    assert 'strongroom_requests_total{outcome="ok"} 4.0' in text
    assert "strongroom_open_requests 3.0" in text
    assert "canary" not in text
    assert launcher.pulses == [pulse]


async def _status(channel: grpc.aio.Channel, nonce: bytes) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await AttestationStub(channel).GetAttestation(AttestationRequest(nonce=nonce))
    return error.value.code().name, error.value.details() or ""


async def test_attestation_on_the_socket(channel: grpc.aio.Channel, launcher: Launcher) -> None:
    assert (await _status(channel, NONCE))[0] == "UNAVAILABLE"
    claims = canonical.encode(claims_document([identity("current")]))
    launcher.rounds = Rounds(SimulatedAttester(), lambda: claims)
    assert (await AttestationStub(channel).GetAttestation(AttestationRequest(nonce=NONCE))).claims == claims
    assert (await _status(channel, b"short"))[0] == "INVALID_ARGUMENT"


@pytest.mark.parametrize("failure", [EvidenceError("canary"), RuntimeError("canary")])
async def test_attestation_that_fails_does_not_tell_why(
    channel: grpc.aio.Channel, launcher: Launcher, failure: Exception
) -> None:
    """Front ends pass the status on to anybody who asks."""

    class Failing:
        type = "simulated"

        def collect(self, report_data: bytes) -> Evidence:
            raise failure

    launcher.rounds = Rounds(Failing(), lambda: b"{}")
    code, details = await _status(channel, NONCE)
    assert "canary" not in details
    assert code == "UNAVAILABLE"


async def test_a_front_end_notices_that_the_launcher_is_gone(channel: grpc.aio.Channel, launcher: Launcher) -> None:
    """The stream of rings ends with an error, never quietly."""
    stream = aiter(ControlStub(channel).Attach(EngineDescription()))
    await anext(stream)
    assert launcher.server is not None
    await launcher.server.stop(0)
    with pytest.raises(grpc.aio.AioRpcError):
        await anext(stream)
