"""Processes that hold keys keep them out of core dumps, and die with their parents (docs/security.md, row 15)."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# PR_GET_DUMPABLE is 3.
REPORT = (
    "import ctypes, resource; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))"
)
PREPARE = {
    "launcher": "from strongroom.launcher.frontend import prepare_process; prepare_process()",
    "worker": "import os; from strongroom.worker.environment import die_with_parent; die_with_parent(os.getppid())",
}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("process", PREPARE)
def test_it_is_not_dumpable_and_writes_no_core(process: str) -> None:
    assert run(f"{PREPARE[process]}; {REPORT}") == "0 (0, 0)"
    assert run(REPORT).startswith("1 "), "control: a process is dumpable unless it says otherwise"


@pytest.mark.parametrize("dies", [True, False])
def test_a_worker_ends_with_its_parent(tmp_path: Path, dies: bool) -> None:
    """The control is a child that did not ask for it."""
    ask = PREPARE["worker"] if dies else "pass"
    child = f"{ask}; print('up', flush=True); import time; time.sleep(60)"
    parent = (
        "import subprocess, sys, time;"
        f"c = subprocess.Popen([sys.executable, '-c', {child!r}], stdout=subprocess.PIPE);"
        "c.stdout.readline(); print(c.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    deadline = time.monotonic() + (10 if dies else 1)
    while lives(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert lives(pid) is not dies
    if not dies:
        os.kill(pid, signal.SIGKILL)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
