"""From start to stop: what happens in which order, and what ends it.

    CHECKING -> STARTING -> READY -> STOPPING -> STOPPED
                   ^---------'  a front end died: start it again, a limited number of times

CHECKING   configuration, model folder, attester, ports: everything that can be refused within a second
STARTING   keys exist, the control socket and the report endpoint serve, the engine is being built
READY      the engine is attested, a front end's pulse is fresh
STOPPING   SIGTERM came: open requests may finish, nothing new begins

When too many front ends die, the launcher gives up with an error; everything that it started is ended first.
"""

import asyncio
import collections
import contextlib
import dataclasses
import enum
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from importlib.metadata import version
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.applications import Starlette

from strongroom.attestation.collection import Attester, open_attester
from strongroom.attestation.errors import EvidenceError
from strongroom.launcher.config import Config
from strongroom.launcher.control import Control
from strongroom.launcher.errors import LaunchRefused
from strongroom.launcher.events import Event, emit
from strongroom.launcher.frontend import FrontEnd, prepare_process
from strongroom.launcher.keyring import KeyRing
from strongroom.launcher.metrics import Metrics
from strongroom.launcher.model import check_model_folder, manifest, manifest_digest
from strongroom.launcher.report import report_app
from strongroom.launcher.reservation import Reservation, listening_socket
from strongroom.launcher.rounds import Rounds
from strongroom.protocol import claims
from strongroom.protocol.address import Address
from strongroom.protocol.canonical import base64url
from strongroom.protocol.control.control_pb2 import EngineDescription, EngineSettings, Pulse, Settings

# A front end beats every second. Without a pulse for this long it is not ready; a long computation may be why.
PULSE_TIMEOUT_SECONDS = 10
# Without a pulse for this long it hangs, and is killed.
HANG_SECONDS = 60
_PROGRESS_SECONDS = 10
_MAX_REPORT_CONNECTIONS = 16_384
# What a front end gets on top of the drain time to close its engine.
_ENGINE_STOP_SECONDS = 20


class Phase(enum.Enum):
    """Where a launcher is in its life."""

    CHECKING = "checking"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"


@dataclasses.dataclass
class _Engine:
    """What a front end said that it runs, once it was attached."""

    description: EngineDescription
    model_digest: str
    rounds: Rounds


class Launcher:
    """One launcher, run once. `run` returns when SIGTERM or SIGINT was handled; anything else raises."""

    def __init__(self, config: Config, *, verbose: bool = False) -> None:
        self._config = config
        self._verbose = verbose
        self._boot_id = secrets.token_hex(16)
        self._signing_key = Ed25519PrivateKey.generate()
        self._ring = KeyRing(
            random=os.urandom,
            lifetime=config.keys.lifetime_seconds,
            grace=config.keys.grace_seconds,
            capacity=config.limits.replay_ids,
        )
        self._metrics = Metrics()
        self._engine: _Engine | None = None
        self._last_pulse = -float("inf")
        self._stop = asyncio.Event()
        self.phase = Phase.CHECKING

    async def run(self) -> None:
        """Start, serve, stop. Raises `LaunchRefused` when a step fails; whatever was started is ended first."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._stop.set)
        prepare_process()
        config = self._config
        check_model_folder(config.model)
        try:
            self._attester: Attester = await asyncio.to_thread(open_attester, config.tee)
        except EvidenceError as error:
            raise LaunchRefused(str(error)) from error
        async with contextlib.AsyncExitStack() as stack:
            listen = stack.enter_context(contextlib.closing(Reservation(Address.parse(config.listen), "--listen")))
            report = stack.enter_context(listening_socket(Address.parse(config.report_listen), "--report-listen"))
            self._listen = listen.address
            self._report_listen = Address(Address.parse(config.report_listen).host, report.getsockname()[1])
            run_dir = await stack.enter_async_context(_run_dir())
            emit(Event.STARTING, version=version("strongroom"), model=config.served_model_name, tee=self._attester.type)
            if self._attester.type == "simulated":
                emit(Event.SIMULATED)
            self._ring.start(time.monotonic(), time.time())
            self._control = self._make_control()
            control_path = run_dir / "control"
            server = await self._control.serve(str(control_path))
            stack.push_async_callback(server.stop, 0)
            await stack.enter_async_context(_serve(report_app(self._rounds, self.is_ready, self._metrics), report))
            self.phase = Phase.STARTING
            await _first_of(self._supervise(control_path, run_dir), self._rotate())
        self.phase = Phase.STOPPED
        emit(Event.STOPPED)

    # Front ends -----------------------------------------------------------------------------------------------

    async def _supervise(self, control: Path, run_dir: Path) -> None:
        """Keep one front end running until the launcher is stopped; give up when it dies too often."""
        deaths: collections.deque[float] = collections.deque()
        attempt = 0
        while not self._stop.is_set():
            attempt += 1
            emit(Event.ENGINE_STARTING, attempt=attempt)
            # At every start: the engine reads the files again.
            self._digest = asyncio.create_task(self._hash_model())
            front_end = await FrontEnd.start(control, run_dir, self._say_engine_line)
            self._front_end = front_end
            try:
                started_well, code = await self._watch(front_end)
            finally:
                self._metrics.ready.set(0)
                await front_end.stop(0)
            if front_end.withheld:
                emit(Event.OUTPUT_WITHHELD, lines=front_end.withheld)
            if self._stop.is_set():
                return
            self.phase = Phase.STARTING
            if self._digest.done():
                self._digest.result()
            if not started_well and attempt == 1:
                reasons = "\n  ".join(front_end.reasons or ["it named no error"])
                raise LaunchRefused(
                    f"the engine did not start (exit code {code}):\n  {reasons}\n"
                    "--verbose shows all that it said; start_seconds is the longest that it may take"
                )
            emit(Event.FRONT_END_DIED, code=code)
            now = time.monotonic()
            deaths.append(now)
            while deaths[0] < now - self._config.restart.window_seconds:
                deaths.popleft()
            if len(deaths) > self._config.restart.attempts:
                raise LaunchRefused(
                    f"front ends died {len(deaths)} times within {self._config.restart.window_seconds} s: giving up"
                )
            self._metrics.restarts.inc()

    async def _watch(self, front_end: FrontEnd) -> tuple[bool, int]:
        """Wait for the end of `front_end`, its own or one that this launcher decides on."""
        config = self._config
        ended = asyncio.create_task(front_end.wait())
        stopped = asyncio.create_task(self._stop.wait())
        started = time.monotonic()
        reported = started
        self._last_pulse = -float("inf")
        ready = False
        try:
            while True:
                await asyncio.wait({ended, stopped}, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
                now = time.monotonic()
                if ended.done():
                    break
                if stopped.done():
                    self.phase = Phase.STOPPING
                    self._metrics.ready.set(0)
                    emit(Event.STOPPING, seconds=config.drain_seconds)
                    await front_end.stop(config.drain_seconds + _ENGINE_STOP_SECONDS if ready else 0)
                    break
                if self._pulse_is_fresh(now) and not ready:
                    ready = True
                    self.phase = Phase.READY
                    self._metrics.ready.set(1)
                    emit(Event.READY, listen=str(self._listen), report_listen=str(self._report_listen))
                elif now - (self._last_pulse if ready else started) > (HANG_SECONDS if ready else config.start_seconds):
                    await front_end.stop(0)
                    break
                elif not ready and now - reported > _PROGRESS_SECONDS:
                    reported = now
                    emit(Event.ENGINE_PROGRESS, seconds=int(now - started))
            return ready, await ended
        finally:
            stopped.cancel()

    def _say_engine_line(self, line: str) -> None:
        if self._verbose:
            emit(Event.ENGINE_OUTPUT, line=line)

    def _pulse_is_fresh(self, now: float) -> bool:
        return now - self._last_pulse < PULSE_TIMEOUT_SECONDS

    def _beaten(self, pulse: Pulse) -> None:
        if pulse.serving:
            self._last_pulse = time.monotonic()

    def is_ready(self) -> bool:
        """Whether requests are accepted right now."""
        return self.phase is Phase.READY and self._pulse_is_fresh(time.monotonic())

    # Claims and keys ------------------------------------------------------------------------------------------

    async def _attached(self, description: EngineDescription) -> bytes:
        """Take what a front end says that it runs into the claims; from here on its output is withheld."""
        digest = await self._digest
        self._front_end.withholding = True
        if self._engine is not None and (self._engine.description, self._engine.model_digest) != (description, digest):
            # A key means one configuration: what verifiers were told about these keys no longer holds.
            self._ring.replace(time.monotonic(), time.time())
            emit(Event.KEYS_REPLACED)
            self._control.keys_changed()
        self._engine = _Engine(description, digest, Rounds(self._attester, self._claims))
        # Evidence that cannot be collected must not be found out by the first client.
        await self._engine.rounds.bundle(os.urandom(32))
        return bytes.fromhex(digest.removeprefix("sha256:"))

    def _rounds(self) -> Rounds | None:
        return self._engine.rounds if self._engine else None

    def _claims(self) -> bytes:
        assert self._engine is not None
        config, engine = self._config, self._engine.description
        return claims.Claims(
            version=1,
            boot_id=self._boot_id,
            keys=self._ring.claimed(),
            signing_key=claims.SigningKey(
                algorithm="Ed25519", public_key=base64url(self._signing_key.public_key().public_bytes_raw())
            ),
            model=claims.Model(name=config.served_model_name, digest=self._engine.model_digest, signature=None),
            engine=claims.Engine(
                name=engine.name,
                version=engine.version,
                arguments=json.loads(engine.arguments),
                digest=engine.digest,
            ),
            cache=claims.Cache(
                salt="required",
                hash="sha256",
                tiers=[claims.Tier(medium="gpu", bytes=engine.gpu_cache_bytes, encryption=None, key=None)],
            ),
            stream=claims.Stream(padding=config.stream.padding, tick_ms=config.stream.tick_ms),
            devices=[],
            tee=claims.Tee.model_validate({"type": self._attester.type}),
            launcher=claims.Launcher(version=version("strongroom"), config=config.digest()),
            info={},
        ).encode()

    async def _rotate(self) -> None:
        while True:
            await asyncio.sleep(max(self._ring.next_change() - time.monotonic(), 0.01))
            if self._ring.advance(time.monotonic(), time.time()):
                self._control.keys_changed()
                emit(Event.KEYS_CHANGED, key_id=self._ring.claimed()[0].key_id)

    async def _hash_model(self) -> str:
        digest = manifest_digest(await asyncio.to_thread(manifest, self._config.model))
        emit(Event.MODEL_DIGEST, digest=digest)
        return digest

    def _make_control(self) -> Control:
        config = self._config
        given = config.engine.model_dump(exclude_none=True)
        settings = Settings(
            model_path=str(config.model.resolve()),
            served_model_name=config.served_model_name,
            listen=str(self._listen),
            engine=EngineSettings(**given),
            max_open_requests=config.limits.open_requests,
            drain_seconds=config.drain_seconds,
        )
        return Control(
            settings=settings,
            ring=self._ring,
            metrics=self._metrics,
            padding=config.stream.padding,
            tick_ms=config.stream.tick_ms,
            attached=self._attached,
            beaten=self._beaten,
            rounds=self._rounds,
        )


class _QuietServer(uvicorn.Server):
    """uvicorn without its signal handlers: the launcher has its own."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


@contextlib.asynccontextmanager
async def _run_dir() -> AsyncIterator[Path]:
    """A folder that only this user can enter; gone when the launcher is."""
    path = Path(tempfile.mkdtemp(prefix="strongroom-"))
    try:
        for name in ("home", "tmp"):
            (path / name).mkdir(mode=0o700)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextlib.asynccontextmanager
async def _serve(app: Starlette, sock: socket.socket) -> AsyncIterator[None]:
    """Serve `app` on a listening socket."""
    # The log is a closed list of events; uvicorn would add a line for each request that is none.
    logging.getLogger("uvicorn.error").disabled = True
    server = _QuietServer(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            limit_concurrency=_MAX_REPORT_CONNECTIONS,
            timeout_graceful_shutdown=2,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def _first_of(*works: Coroutine[Any, Any, None]) -> None:
    """Run all, until one ends or fails; the others are cancelled, and a failure is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
