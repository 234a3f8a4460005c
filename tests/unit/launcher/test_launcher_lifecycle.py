"""What the launcher does when front ends end or come back different, with a fake in a front end's place."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from strongroom.attestation.simulated import SimulatedAttester
from strongroom.launcher import lifecycle
from strongroom.launcher.config import Config
from strongroom.launcher.errors import LaunchRefused
from strongroom.launcher.lifecycle import Launcher
from strongroom.protocol.control.control_pb2 import EngineDescription, Pulse

DESCRIPTION = EngineDescription(
    name="vllm", version="1", arguments=b'{"a":1}', digest="sha256:" + "0" * 64, gpu_cache_bytes=1
)


class FakeFrontEnd:
    """Ends when it is told to; serves at once if `serves`."""

    started: list["FakeFrontEnd"]
    serves = True
    launcher: Launcher

    def __init__(self) -> None:
        self.withholding, self.withheld, self.reasons = False, 0, ["its last line"]
        self.code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        type(self).started.append(self)

    @classmethod
    async def start(cls, *_: Any) -> "FakeFrontEnd":
        front_end = cls()
        if cls.serves:
            cls.launcher._beaten(Pulse(serving=True))
            asyncio.get_running_loop().call_later(0.25, cls.launcher._beaten, Pulse(serving=True))
        return front_end

    async def wait(self) -> int:
        return await asyncio.shield(self.code)

    async def stop(self, _: float) -> int:
        if not self.code.done():
            self.code.set_result(0)
        return await self.wait()


@pytest.fixture
async def launcher(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Launcher]:
    config = Config.model_validate({"model": model_folder, "served_model_name": "m", "restart": {"attempts": 2}})
    launcher = Launcher(config)
    launcher._attester = SimulatedAttester()
    launcher._ring.start(0, 0)
    launcher._digest = asyncio.create_task(launcher._hash_model())
    launcher._listen = launcher._report_listen = lifecycle.Address("127.0.0.1", 1)
    launcher._control = launcher._make_control()
    FakeFrontEnd.started, FakeFrontEnd.serves, FakeFrontEnd.launcher = [], True, launcher
    monkeypatch.setattr(lifecycle, "FrontEnd", FakeFrontEnd)
    yield launcher
    launcher._digest.cancel()


async def kill_each(number: int) -> None:
    """Let `number` front ends become ready, and end each."""
    for i in range(number):
        async with asyncio.timeout(10):
            while len(FakeFrontEnd.started) <= i:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.5)
        FakeFrontEnd.started[i].code.set_result(-9)


async def supervise(launcher: Launcher, tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        await launcher._supervise(tmp_path / "control", tmp_path)


async def test_it_gives_up_when_front_ends_die_too_often(launcher: Launcher, tmp_path: Path) -> None:
    killing = asyncio.create_task(kill_each(3))
    with pytest.raises(LaunchRefused, match="died 3 times within"):
        await supervise(launcher, tmp_path)
    await killing
    assert len(FakeFrontEnd.started) == 3, "two restarts are allowed"
    assert not launcher.is_ready()


async def test_a_first_front_end_that_never_serves_is_explained(launcher: Launcher, tmp_path: Path) -> None:
    FakeFrontEnd.serves = False
    killing = asyncio.create_task(kill_each(1))
    with pytest.raises(LaunchRefused, match="its last line"):
        await supervise(launcher, tmp_path)
    await killing


async def test_a_stop_ends_it_without_a_restart(launcher: Launcher, tmp_path: Path) -> None:
    asyncio.get_running_loop().call_later(0.6, launcher._stop.set)
    await supervise(launcher, tmp_path)
    assert len(FakeFrontEnd.started) == 1


async def test_an_engine_that_comes_back_the_same_keeps_the_keys(launcher: Launcher) -> None:
    launcher._front_end = FakeFrontEnd()  # type: ignore[assignment]
    digest = await launcher._attached(DESCRIPTION)
    assert digest == bytes.fromhex(launcher._digest.result().removeprefix("sha256:"))
    assert launcher._front_end.withholding, "from here on nothing that it prints is shown"
    before = launcher._ring.claimed()
    await launcher._attached(DESCRIPTION)
    assert launcher._ring.claimed() == before


@pytest.mark.parametrize(
    "change", [{"digest": "sha256:" + "1" * 64}, {"arguments": b'{"a":2}'}, {"gpu_cache_bytes": 2}]
)
async def test_an_engine_that_comes_back_different_costs_every_key(launcher: Launcher, change: dict[str, Any]) -> None:
    launcher._front_end = FakeFrontEnd()  # type: ignore[assignment]
    await launcher._attached(DESCRIPTION)
    before = {key.key_id for key in launcher._ring.claimed()}
    other = EngineDescription()
    other.CopyFrom(DESCRIPTION)
    for name, value in change.items():
        setattr(other, name, value)
    await launcher._attached(other)
    assert before.isdisjoint(key.key_id for key in launcher._ring.claimed())
    assert before == {key_id.hex() for key_id in launcher._ring.retired_key_ids()}
    assert json.loads(launcher._claims())["engine"]["digest"] == other.digest
