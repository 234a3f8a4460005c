"""The product as its users start it: `strongroom serve` and `strongroom proxy` as processes, for tests and the demo."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import yaml

COMMAND = [str(Path(sys.executable).with_name("strongroom"))]
START_SECONDS = 300


class Failed(Exception):
    """A process ended, or did not become ready."""


class Process:
    """A command whose standard error is read line by line."""

    def __init__(self, arguments: list[str]) -> None:
        self.lines: list[str] = []
        self._queue: queue.Queue[str | None] = queue.Queue()
        self.popen = subprocess.Popen(COMMAND + arguments, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.lines.append(line.rstrip())
            self._queue.put(line.rstrip())
        self._queue.put(None)

    def until(self, found: Callable[[str], bool], seconds: float = START_SECONDS) -> str:
        """The next line for which `found` holds."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._queue.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                raise Failed("it was not ready in time:\n" + "\n".join(self.lines[-20:])) from None
            if line is None:
                self.popen.wait()
                raise Failed(f"it ended with code {self.popen.returncode}:\n" + "\n".join(self.lines[-20:]))
            if found(line):
                return line

    def stop(self, seconds: float = 60) -> int:
        """SIGTERM, and its exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.popen.send_signal(signal.SIGTERM)
        return self.wait_for_end(seconds)

    def wait_for_end(self, seconds: float) -> int:
        """Its exit code, once all that it printed was read."""
        code = self.popen.wait(seconds)
        self._reader.join(seconds)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.popen.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()


class Service(Process):
    """`strongroom serve` with the simulated TEE on free ports of the loopback address."""

    def __init__(self, model: Path, name: str, folder: Path, *flags: str, **settings: Any) -> None:
        """`settings` are members of the configuration file, which is written to `folder`."""
        self.name = name
        config = folder / "serve.yaml"
        config.write_text(yaml.safe_dump(settings))
        required = ["--model", str(model), "--served-model-name", name, "--tee", "simulated", "--config", str(config)]
        ports = ["--listen", "127.0.0.1:0", "--report-listen", "127.0.0.1:0"]
        super().__init__(["serve", *required, *ports, *flags])
        self.address = ""
        self.report = ""

    def wait(self, progress: Callable[[str], None] = lambda message: None) -> Self:
        """Wait until it is ready."""

        def ready(line: str) -> bool:
            if not line.startswith("{"):
                return False
            event = json.loads(line)
            progress(event["message"])
            return bool(event["event"] == "ready")

        event = json.loads(self.until(ready))
        self.address, self.report = event["listen"], event["report_listen"]
        return self

    def get(self, path: str) -> tuple[int, bytes]:
        """Status and body of a path of the report endpoint."""
        try:
            with urllib.request.urlopen(f"http://{self.report}{path}", timeout=30) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def metric(self, name: str) -> float:
        """The value of one metric, its labels written as in the exposition."""
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(f"{name} "):
                return float(line.split()[-1])
        raise KeyError(name)

    def descendants(self) -> dict[int, str]:
        """Processes below the launcher, with their command lines."""
        found = {self.popen.pid: "serve"}
        for _ in range(4):
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                with contextlib.suppress(OSError, IndexError):
                    parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
                    if parent in found:
                        found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        del found[self.popen.pid]
        return found


@contextlib.contextmanager
def proxy(address: str, policy: Path, *arguments: str) -> Iterator[str]:
    """`strongroom proxy` on a free port; gives the base URL for OpenAI's SDK."""
    flags = ["proxy", "--server", address, "--policy", str(policy), "--listen", "127.0.0.1:0", *arguments]
    with Process(flags) as process:
        yield process.until(lambda line: line.startswith("OpenAI base URL")).split()[3]


def manifest(model: Path) -> dict[str, Any]:
    """What `strongroom model manifest` prints."""
    result = subprocess.run([*COMMAND, "model", "manifest", str(model)], check=True, capture_output=True)
    return dict(json.loads(result.stdout))


def policy_document(folder: Path, served_name: str, **changes: Any) -> dict[str, Any]:
    """A policy that accepts simulated evidence and pins the model and what makes the cache safe."""
    return {
        "version": 1,
        "insecure_allow_simulated": True,
        "tee": [],
        "devices": "none",
        "suites": ["MLKEM768-X25519/HKDF-SHA256/AES-256-GCM"],
        "model": {"name": [served_name], "digest": [manifest(folder)["digest"]]},
        "engine": {
            "name": ["vllm"],
            "version": "insecure_any",
            "arguments": {"enable_prefix_caching": True, "prefix_caching_hash_algo": "sha256", "kv_events": False},
            "digest": "insecure_any",
        },
        "cache": {"tiers": ["gpu"]},
        "stream": {"padding": "bucket-256", "tick_ms": 20},
        "launcher": {"version": "insecure_any", "config": "insecure_any"},
    } | changes


def write_policy(path: Path, document: dict[str, Any]) -> Path:
    """Write a policy file."""
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
