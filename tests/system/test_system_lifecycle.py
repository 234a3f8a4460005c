"""Rotation, death and stop of the real service. These tests run last, in this order."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import openai
import pytest

from strongroom.client.channel import VerifiedChannel
from strongroom.client.errors import RequestFailed, Unreachable
from strongroom.protocol.request import seal
from tests.service import Service
from tests.system.conftest import DRAIN_SECONDS, KEY_LIFETIME_SECONDS, NAME
from tests.system.test_system_refusals import REQUEST, infer

BODY = {"model": NAME, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
RESTART_SECONDS = 120


async def eventually(what: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if await what():
            return True
        await asyncio.sleep(0.2)
    return False


async def answers(client: openai.OpenAI) -> bool:
    """Whether the proxy reaches the worker again."""
    try:
        return client.chat.completions.create(**BODY).usage.completion_tokens <= 2
    except openai.InternalServerError:
        return False


def shared_memory(pids: Iterable[int]) -> set[Path]:
    """Files of /dev/shm that processes have mapped. These processes are not dumpable: only root sees their maps."""
    mapped: list[str] = []
    for pid in pids:
        with contextlib.suppress(PermissionError):
            mapped += [line for line in Path(f"/proc/{pid}/maps").read_text().splitlines() if "/dev/shm/" in line]
    return {Path(line.split(maxsplit=5)[5]) for line in mapped}


async def current_key(channel: VerifiedChannel) -> bytes:
    return (await channel.attest()).keys[0].key_id


async def test_a_replay_is_refused_after_a_key_rotation(service: Service, channel: VerifiedChannel) -> None:
    worker = await channel.attest()
    raw = seal(worker.keys[:1], REQUEST, random=os.urandom).sealed
    late = seal(worker.keys[:1], REQUEST, random=os.urandom).sealed
    assert (await infer(service.address, raw))[0] == "OK"

    async def rotated() -> bool:
        return await current_key(channel) != worker.keys[0].key_id

    assert await eventually(rotated, KEY_LIFETIME_SECONDS + 10)
    assert await current_key(channel) == worker.keys[1].key_id, "the next key became the current one"
    assert (await infer(service.address, raw))[:2] == ("ALREADY_EXISTS", "replay")
    assert (await infer(service.address, late))[0] == "OK", "control: the retired key still opens what is new"


async def test_a_killed_front_end_is_started_again_and_still_refuses_replays(
    service: Service, channel: VerifiedChannel, client: openai.OpenAI
) -> None:
    worker = await channel.attest()
    raw = seal(worker.keys[:1], REQUEST, random=os.urandom).sealed
    fresh = seal(worker.keys[:1], REQUEST, random=os.urandom).sealed
    assert (await infer(service.address, raw))[0] == "OK"
    before = service.descendants()
    (front_end,) = [pid for pid, command in before.items() if "strongroom.worker" in command]
    restarts = service.metric("strongroom_front_end_restarts_total")
    segments = shared_memory(before)

    os.kill(front_end, signal.SIGKILL)

    async def not_ready() -> bool:
        return service.get("/readyz")[0] == 503

    async def ready() -> bool:
        return service.get("/readyz")[0] == 200

    assert await eventually(not_ready, 10)
    with pytest.raises(openai.InternalServerError) as failed:
        client.chat.completions.create(**BODY)
    assert failed.value.status_code == 503
    assert await eventually(ready, RESTART_SECONDS)
    assert not set(before) & set(service.descendants()), "nothing of the dead front end is left"
    assert [path for path in segments if path.exists()] == []
    assert service.metric("strongroom_front_end_restarts_total") == restarts + 1
    assert (await infer(service.address, raw))[:2] == ("ALREADY_EXISTS", "replay")
    assert (await infer(service.address, fresh))[0] == "OK", "control: the same key opens what is new"
    # The proxy and the channel find the worker again by themselves.
    assert await eventually(lambda: answers(client), 5)
    assert (await channel.attest()).claims.boot_id == worker.claims.boot_id


async def test_a_killed_engine_is_started_again(service: Service, client: openai.OpenAI) -> None:
    (engine,) = [pid for pid, command in service.descendants().items() if "EngineCore" in command]
    restarts = service.metric("strongroom_front_end_restarts_total")

    os.kill(engine, signal.SIGKILL)

    async def restarted() -> bool:
        is_ready = service.get("/readyz")[0] == 200
        return is_ready and service.metric("strongroom_front_end_restarts_total") == restarts + 1

    assert await eventually(restarted, RESTART_SECONDS)
    assert await eventually(lambda: answers(client), 5)


async def test_sigterm_lets_open_streams_finish_and_leaves_nothing_behind(
    service: Service, channel: VerifiedChannel
) -> None:
    processes = service.descendants()
    run_dirs = {Path(command.split()[-1]).parent for command in processes.values() if "strongroom.worker" in command}
    assert len(run_dirs) == 1
    (run_dir,) = run_dirs
    assert run_dir.is_dir()
    assert run_dir.stat().st_mode & 0o077 == 0
    segments = shared_memory(processes)
    assert segments or os.geteuid() != 0, "control: the engine does use shared memory"
    body = json.dumps({**BODY, "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()
    response = await channel.request("/v1/chat/completions", body)
    first = await anext(response.body)
    service.popen.send_signal(signal.SIGTERM)

    async def draining() -> bool:
        try:
            await channel.request("/v1/models")
        except RequestFailed as error:
            return error.code == "draining"
        except Unreachable:
            return True
        return False

    assert await eventually(draining, 5), "nothing new is taken"
    assert service.get("/readyz")[0] == 503
    rest = [piece async for piece in response.body]
    assert b"".join([first, *rest]).endswith(b"data: [DONE]\n\n"), "the open stream ended whole"
    assert await asyncio.to_thread(service.wait_for_end, DRAIN_SECONDS + 40) == 0
    alive = [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    assert alive == []
    assert not run_dir.exists()
    assert [path for path in segments if path.exists()] == []
    assert json.loads(service.lines[-1])["event"] == "stopped"
