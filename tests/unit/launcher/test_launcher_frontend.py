"""Front ends as processes: a clean environment, output that is withheld, and nothing left behind."""

import asyncio
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from strongroom.launcher.frontend import FrontEnd, front_end_environment, prepare_process

Start = Callable[[str], Awaitable[FrontEnd]]

DROPPED = {
    "LD_PRELOAD": "/evil.so",
    "LD_AUDIT": "/evil.so",
    "PYTHONPATH": "/evil",
    "PYTHONHASHSEED": "0",
    "PYTHONSTARTUP": "/evil.py",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
    "HF_ENDPOINT": "http://evil",
    "HF_TOKEN": "secret",
    "TRANSFORMERS_CACHE": "/evil",
    "TORCH_LOGS": "+all",
    "NCCL_DEBUG": "INFO",
    "CUDA_INJECTION64_PATH": "/evil.so",
    "http_proxy": "http://evil",
    "SSLKEYLOGFILE": "/evil",
    "GRPC_TRACE": "all",
    "GRPC_VERBOSITY": "DEBUG",
    "nvidia_lower": "1",
}
KEPT = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}


def test_what_could_change_the_engine_is_not_inherited(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (DROPPED | KEPT).items():
        monkeypatch.setenv(name, value)
    environment = front_end_environment(tmp_path)
    assert not set(DROPPED) & set(environment)
    assert KEPT.items() <= environment.items()


def test_caches_and_temporary_files_stay_in_the_run_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "/elsewhere")
    environment = front_end_environment(tmp_path)
    assert "/elsewhere" not in environment.values()
    for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        assert environment[name].startswith(str(tmp_path))


class Lines(list[str]):
    """What a front end said."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def say(self, line: str) -> None:
        self.append(line)
        self._more.set()

    async def until(self, line: str) -> None:
        async with asyncio.timeout(10):
            while line not in self:
                self._more.clear()
                await self._more.wait()


@pytest.fixture
async def said() -> Lines:
    return Lines()


@pytest.fixture
async def start(said: Lines) -> AsyncIterator[Start]:
    """Starts front ends whose processes run a small Python script instead of the worker."""
    children: list[tuple[asyncio.subprocess.Process, FrontEnd]] = []

    async def run(script: str) -> FrontEnd:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-u", "-c", script),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
            limit=64 * 1024,
        )
        child = FrontEnd(process, said.say)
        children.append((process, child))
        return child

    yield run
    for process, child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await child._reader
        await process.wait()


async def test_output_is_passed_on_until_requests_are_seen(tmp_path: pathlib.Path, said: Lines, start: Start) -> None:
    go = tmp_path / "go"
    script = f"import os, time; print('before')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    child = await start(script + "print('a prompt'); print('another')")
    await said.until("before")
    child.withholding = True
    go.touch()
    assert await child.wait() == 0
    assert said == ["before"]
    assert child.withheld == 2


async def test_long_lines_bytes_and_many_lines_do_not_stop_the_reader(said: Lines, start: Start) -> None:
    script = "import os; print('x' * 200_000); os.write(1, b'\\xff\\n'); [print(i) for i in range(50)]; print('end')"
    child = await start(script)
    await child.wait()
    assert said[-1] == "end"
    assert "\ufffd" in said


VLLM_WORDS = """(Worker pid=1) ERROR 11-30 11:20:52 [multiproc_executor.py:953] Traceback (most recent call last):
(Worker pid=1) ERROR 11-30 11:20:52 [multiproc_executor.py:953]     raise ValueError(
(Worker pid=1) ERROR 11-30 11:20:52 [multiproc_executor.py:953] ValueError: Available memory is too small
  File "x.py", line 1, in y
ValueError: Available memory is too small
Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace for root cause.
strongroom.worker: RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""


async def test_why_an_engine_did_not_start_is_said_without_its_traces(start: Start) -> None:
    child = await start(f"print({VLLM_WORDS!r})")
    await child.wait()
    assert child.reasons == ["ValueError: Available memory is too small"]


async def test_an_error_after_keys_were_handed_out_is_no_reason(
    tmp_path: pathlib.Path, said: Lines, start: Start
) -> None:
    go = tmp_path / "go"
    script = f"import os, time; print('before')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
    child = await start(script + "print('ValueError: a prompt')")
    await said.until("before")
    child.withholding = True
    go.touch()
    await child.wait()
    assert child.reasons == []


async def test_the_exit_code_is_that_of_the_process(start: Start) -> None:
    assert await (await start("raise SystemExit(3)")).wait() == 3


async def test_a_process_that_ignores_sigterm_is_killed(said: Lines, start: Start) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(60)"
    child = await start(script)
    await said.until("up")
    async with asyncio.timeout(5):
        assert await child.stop(0.2) == -9


async def test_one_that_has_ended_may_be_stopped_again(start: Start) -> None:
    child = await start("print('up')")
    async with asyncio.timeout(8):
        assert await child.wait() == 0
        assert await child.stop(0) == 0


@pytest.mark.parametrize("ends_by_itself", [False, True])
async def test_children_of_a_front_end_end_with_it(said: Lines, ends_by_itself: bool, start: Start) -> None:
    """An engine that outlives its front end, and holds its standard output open, is noticed and killed."""
    prepare_process()
    script = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-I', '-c', 'import time; time.sleep(12)'])\n"
        "print(child.pid)\nprint('up')\n" + ("" if ends_by_itself else "time.sleep(12)")
    )
    child = await start(script)
    # The launcher waits from the start.
    ended = asyncio.create_task(child.wait())
    await said.until("up")
    async with asyncio.timeout(8):
        if not ends_by_itself:
            await child.stop(0)
        await ended
    assert not _lives(int(said[0]))


async def test_a_front_end_leads_a_group_of_its_own_and_reports_a_launcher_that_is_not_there(
    said: Lines, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/evil")
    child = await FrontEnd.start(tmp_path / "no-socket", tmp_path, said.say)
    pid = child._process.pid
    assert os.getpgid(pid) == pid != os.getpgid(0)
    assert await asyncio.wait_for(child.wait(), 60) == 1
    assert said[0].startswith("strongroom.worker: AioRpcError")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]
    return state != "Z"
