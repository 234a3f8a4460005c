"""One front end as a child process: started with a clean environment, watched, and ended with all its children."""

import asyncio
import collections
import contextlib
import ctypes
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

# What a front end may inherit. Everything else could change what runs: VLLM_*, PYTHON*, LD_PRELOAD, HF_* ...
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH")
_INHERITED_PREFIXES = ("NVIDIA_",)
_REASONS = 3
# The last line of a Python trace, whatever logger stands before it; vLLM's own say no more than that there is another.
_REASON = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Refused|Died): .+)")
_NO_REASON = re.compile(r"[Ss]ee (?:root cause|stack trace)")
_MAX_LINE_BYTES = 64 * 1024
_LEFTOVERS_SECONDS = 3
_POLL_SECONDS = 0.05
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_DUMPABLE = 4


def prepare_process() -> None:
    """Take in orphans of front ends, so that none escapes; keep keys out of core dumps and other processes' sight."""
    libc = ctypes.CDLL(None, use_errno=True)
    for option, value in ((_PR_SET_CHILD_SUBREAPER, 1), (_PR_SET_DUMPABLE, 0)):
        if libc.prctl(option, value, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), f"prctl({option})")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Idle connections must not use up what the system would allow.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def front_end_environment(run_dir: Path) -> dict[str, str]:
    """The whole environment of a front end and its engine: caches and temporary files stay in `run_dir`."""
    inherited = {
        name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith(_INHERITED_PREFIXES)
    }
    home = str(run_dir / "home")
    return inherited | {"HOME": home, "TMPDIR": str(run_dir / "tmp"), "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home}


class FrontEnd:
    """A running front end. It leads a process group of its own, so that its engine's processes end with it.

    Not a session of its own: Linux would schedule that as a group apart (autogroup), and on a busy machine an engine
    that spins was seen to keep everything else waiting for seconds.
    """

    def __init__(self, process: asyncio.subprocess.Process, say: Callable[[str], None]) -> None:
        self._process = process
        self._say = say
        self._reasons: collections.deque[str] = collections.deque(maxlen=_REASONS)
        self._reader = asyncio.create_task(self._read())
        self.withholding = False
        self.withheld = 0

    @classmethod
    async def start(cls, control: Path, run_dir: Path, say: Callable[[str], None]) -> "FrontEnd":
        """Start a front end that talks to the launcher on the socket `control`; `say` gets its lines of output."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-m",
            "strongroom.worker",
            str(control),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=front_end_environment(run_dir),
            cwd=run_dir,
            process_group=0,
            limit=_MAX_LINE_BYTES,
        )
        return cls(process, say)

    @property
    def reasons(self) -> list[str]:
        """The last different errors that it named before it was given keys, without their traces."""
        return list(self._reasons)

    async def wait(self) -> int:
        """Wait for the end of the process, end what is left of its children, and give its exit code."""
        # Not Process.wait(): that waits for the pipe too, which an engine left behind would hold open.
        while self._process.returncode is None:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(_POLL_SECONDS)
        await self._end_group()
        await self._reader
        return self._process.returncode

    async def stop(self, seconds: float) -> int:
        """Ask it to finish, and kill it after `seconds`."""
        if self._process.returncode is None:
            self._process.terminate()
        try:
            return await asyncio.wait_for(self.wait(), seconds)
        except TimeoutError:
            # Only itself: its children die with it, and Python's resource tracker lives to remove shared memory, in
            # which vLLM's processes pass prompts to each other.
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            return await self.wait()

    async def _end_group(self) -> None:
        """Wait until no process of the group is left, killing what does not end by itself.

        They end with their parent; Python's resource tracker then still removes shared memory, so it gets a moment.
        """
        patience = asyncio.get_running_loop().time() + _LEFTOVERS_SECONDS
        while self._signal_group(0):
            if asyncio.get_running_loop().time() > patience:
                self._signal_group(signal.SIGKILL)
            # As a subreaper, this process inherits orphans and must reap them.
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-self._process.pid, os.WNOHANG)[0]:  # noqa: ASYNC222 - WNOHANG returns at once
                    pass
            await asyncio.sleep(_POLL_SECONDS)

    def _signal_group(self, number: int) -> bool:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        return True

    async def _read(self) -> None:
        """Pass output on until keys are handed out; from then on it is counted and thrown away."""
        assert self._process.stdout is not None
        while True:
            try:
                raw = await self._process.stdout.readline()
            except ValueError:  # a line above the limit
                continue
            if not raw:
                return
            if self.withholding:
                self.withheld += 1
            else:
                line = raw.decode("utf-8", "replace").rstrip()
                self._say(line)
                reason = _REASON.search(line)
                if reason and not _NO_REASON.search(line) and reason[1] not in self._reasons:
                    self._reasons.append(reason[1])
