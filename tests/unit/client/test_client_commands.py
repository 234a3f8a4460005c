"""The client's commands: each failure has its exit code and one clear message, never a traceback."""

import asyncio
import dataclasses
import json
import os
import pathlib
import socket
import sys
from importlib.metadata import entry_points

import httpx
import pytest
import yaml
from bundles import policy_document
from click.testing import Result
from fake_worker import FakeWorker, mangled, reply, sse
from typer.testing import CliRunner

from strongroom.client import main as main_module
from strongroom.client.main import GROUP, app, main
from strongroom.protocol.cache import new_cache_salt
from strongroom.protocol.v1.strongroom_pb2 import Evidence

STREAM = "text/event-stream; charset=utf-8"
NOWHERE = "127.0.0.1:1"
COMMANDS = [["verify"], ["chat", "hi"], ["proxy", "--listen", "127.0.0.1:0"]]


@pytest.fixture
def policy(tmp_path: pathlib.Path) -> str:
    """A policy that accepts the fake worker."""
    return _written(tmp_path / "policy.yaml", insecure_allow_simulated=True)


@pytest.fixture
def real_policy(tmp_path: pathlib.Path) -> str:
    return _written(tmp_path / "real.yaml", insecure_allow_simulated=False)


def _written(file: pathlib.Path, *, insecure_allow_simulated: bool) -> str:
    file.write_text(yaml.safe_dump(policy_document(insecure_allow_simulated)), encoding="utf-8")
    return str(file)


@pytest.fixture
def salt_file(tmp_path: pathlib.Path) -> pathlib.Path:
    file = tmp_path / "salt"
    file.write_text(new_cache_salt(os.urandom), encoding="ascii")
    file.chmod(0o600)
    return file


def run(*arguments: str) -> Result:
    """In this process, for what ends before anything is connected."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def refused(result: Result, code: int) -> str:
    assert result.exit_code == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


@dataclasses.dataclass
class Done:
    """What a process left."""

    code: int
    out: str
    err: str


async def spawn(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        pathlib.Path(sys.executable).with_name("strongroom"),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
    )


async def finished(process: asyncio.subprocess.Process) -> Done:
    try:
        out, err = await asyncio.wait_for(process.communicate(), 60)
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise
    assert process.returncode is not None
    done = Done(process.returncode, out.decode(), err.decode())
    assert "Traceback" not in done.err
    return done


async def command(*arguments: str) -> Done:
    """In a process of its own, as users run it."""
    return await finished(await spawn(*arguments))


# Usage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_policy_that_is_missing_is_2(tmp_path: pathlib.Path, arguments: list[str]) -> None:
    message = refused(run(*arguments, "--server", NOWHERE, "--policy", str(tmp_path / "none.yaml")), 2)
    assert (
        message
        == f"strongroom {arguments[0]}: cannot read the policy {tmp_path}/none.yaml: No such file or directory\n"
    )


@pytest.mark.parametrize("arguments", COMMANDS)
def test_a_policy_that_is_incomplete_is_2_and_says_what_is_missing(
    tmp_path: pathlib.Path, arguments: list[str]
) -> None:
    (tmp_path / "policy.yaml").write_text("version: 1\n", encoding="utf-8")
    message = refused(run(*arguments, "--server", NOWHERE, "--policy", str(tmp_path / "policy.yaml")), 2)
    assert "model: is missing" in message
    assert "launcher: is missing" in message


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("option", ["--server", "--policy"])
def test_an_option_that_is_required_is_2_when_it_is_missing(arguments: list[str], option: str) -> None:
    given = {"--server": NOWHERE, "--policy": "x"}
    del given[option]
    assert option in refused(run(*arguments, *(word for pair in given.items() for word in pair)), 2)


@pytest.mark.parametrize("arguments", COMMANDS)
@pytest.mark.parametrize("address", ["8443", "host", "host:99999", "http://h:1", "::1:80", ""])
def test_a_bad_address_is_2_with_an_example(policy: str, arguments: list[str], address: str) -> None:
    assert "127.0.0.1:8443" in refused(run(*arguments, "--server", address, "--policy", policy), 2)


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "[::]:8080", "192.0.2.1:80", "example.com:80", "localhost.evil:80"])
def test_the_proxy_listens_on_loopback_only(policy: str, listen: str) -> None:
    message = refused(run("proxy", "--server", NOWHERE, "--policy", policy, "--listen", listen), 2)
    assert "is not a loopback address" in " ".join(message.split())


def test_the_proxy_on_a_busy_port_is_1_and_names_the_flag(policy: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        listen = f"127.0.0.1:{busy.getsockname()[1]}"
        message = refused(run("proxy", "--server", NOWHERE, "--policy", policy, "--listen", listen), 1)
    assert f"cannot listen on {listen}" in message
    assert "--listen" in message


@pytest.mark.parametrize("arguments", COMMANDS[1:])
def test_a_salt_file_that_others_can_read_is_1(policy: str, salt_file: pathlib.Path, arguments: list[str]) -> None:
    salt_file.chmod(0o644)
    message = refused(run(*arguments, "--server", NOWHERE, "--policy", policy, "--cache-salt-file", str(salt_file)), 1)
    assert "chmod 600" in message
    assert salt_file.read_text(encoding="ascii") not in message


@pytest.mark.parametrize(
    ("word", "hint"), [("verfy", "did you mean verify?"), ("porxy", "did you mean proxy?"), ("xyzzy", "chat, model,")]
)
def test_an_unknown_sub_command_gets_a_hint(word: str, hint: str) -> None:
    message = refused(run(word), 2)
    assert f"no sub-command '{word}'" in message
    assert hint in message


def test_every_sub_command_is_listed_and_has_help() -> None:
    listed = run("--help").stdout
    for entry in entry_points(group=GROUP):
        assert entry.name in listed
        assert run(entry.name, "--help").exit_code == 0
    assert run("--version").stdout.startswith("strongroom 0.")


@pytest.mark.parametrize("name", ["chat", "proxy", "serve", "verify"])
def test_the_help_of_a_command_has_its_exit_codes(name: str) -> None:
    assert "Exit codes: 0 " in " ".join(run(name, "--help").stdout.split())


def test_a_defect_is_named_by_its_kind_and_place_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise RuntimeError("canary-prompt")

    monkeypatch.setattr(main_module, "app", broken)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 70
    message = capsys.readouterr().err
    assert "canary" not in message
    assert "RuntimeError in test_client_commands:" in message


# With a worker ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", COMMANDS)
async def test_a_worker_that_is_not_there_is_7(policy: str, arguments: list[str]) -> None:
    done = await command(*arguments, "--server", NOWHERE, "--policy", policy)
    assert (done.code, done.out) == (7, "")
    assert f"no attestation from {NOWHERE}" in done.err
    assert "is the worker running?" in done.err


async def test_verify_accepts_and_says_what_is_insecure(worker: FakeWorker, policy: str) -> None:
    done = await command("verify", "--server", str(worker.address), "--policy", policy)
    assert (done.code, done.err) == (0, "")
    assert "PASS" in done.out
    assert "INSECURE" in next(line for line in done.out.splitlines() if "tee.type" in line)
    assert worker.calls == ["attest"]


async def test_verify_prints_json_for_programs(worker: FakeWorker, policy: str) -> None:
    done = await command("verify", "--json", "--server", str(worker.address), "--policy", policy)
    assert done.code == 0
    assert json.loads(done.out)["verdict"] == "pass"


async def test_verify_of_simulated_evidence_under_a_real_policy_is_6_and_says_why(
    worker: FakeWorker, real_policy: str
) -> None:
    done = await command("verify", "--json", "--server", str(worker.address), "--policy", real_policy)
    assert done.code == 6
    document = json.loads(done.out)
    assert document["verdict"] == "fail"
    assert [c["name"] for c in document["checks"] if c["verdict"] == "fail"] == ["tee.type"]
    message = " ".join(done.err.split())
    assert "REFUSED: tee.type. Nothing was sent to it." in message
    assert "simulated evidence, which proves nothing" in message


async def test_verify_of_broken_evidence_is_3_even_beside_a_policy_that_is_not_met(
    worker: FakeWorker, real_policy: str
) -> None:
    bundle = worker.bundle(bytes(32))
    bundle.devices.append(Evidence(type="nvidia-gpu"))
    worker.spoil = lambda _: bundle.SerializeToString()
    done = await command("verify", "--server", str(worker.address), "--policy", real_policy)
    assert (done.code, done.out) == (3, "")
    for name in ("tee.report_data", "tee.type", "devices.evidence"):
        assert name in done.err


async def test_chat_prints_the_answer_and_nothing_else_on_standard_output(
    worker: FakeWorker, policy: str, salt_file: pathlib.Path
) -> None:
    worker.answer = reply(*sse("Hel", "lo"), kind=STREAM)
    options = ["--server", str(worker.address), "--policy", policy, "--cache-salt-file", str(salt_file)]
    done = await command("chat", "say hello", *options, "--max-tokens", "5", "--temperature", "0")
    assert (done.code, done.out, done.err) == (0, "Hello\n", "")
    body = json.loads(worker.requests[0].body)
    assert body == {
        "max_tokens": 5,
        "temperature": 0.0,
        "model": "tiny",
        "messages": [{"role": "user", "content": "say hello"}],
        "stream": True,
        "cache_salt": salt_file.read_text(encoding="ascii"),
    }


async def test_chat_with_a_refused_worker_is_6_and_sends_nothing(worker: FakeWorker, real_policy: str) -> None:
    done = await command("chat", "hi", "--server", str(worker.address), "--policy", real_policy)
    assert (done.code, done.out) == (6, "")
    assert worker.calls == ["attest"]


async def test_chat_whose_answer_is_cut_off_is_1(worker: FakeWorker, policy: str) -> None:
    worker.answer = mangled(lambda p: p[:2], *sse("Hel", "lo"), kind=STREAM)
    done = await command("chat", "hi", "--server", str(worker.address), "--policy", policy)
    assert (done.code, done.out) == (1, "Hel")
    assert "cannot be trusted" in done.err


@pytest.mark.parametrize(
    ("status", "kind", "body", "message"),
    [
        (400, "application/json", b'{"error":{"message":"too long"}}', "the worker answered: too long"),
        (500, "application/json", b"oops", "not in OpenAI's form"),
        (200, STREAM, b'data: {"error":{"message":"engine died"}}\n\n', "the worker answered: engine died"),
    ],
)
async def test_chat_that_the_worker_cannot_answer_is_1(
    worker: FakeWorker, policy: str, status: int, kind: str, body: bytes, message: str
) -> None:
    worker.answer = reply(body, status=status, kind=kind)
    done = await command("chat", "hi", "--server", str(worker.address), "--policy", policy)
    assert (done.code, done.out) == (1, "")
    assert message in done.err


async def test_chat_with_a_worker_whose_records_do_not_parse_is_no_defect(worker: FakeWorker, policy: str) -> None:
    worker.frame = lambda payload: b"\x0a\xff"
    done = await command("chat", "hi", "--server", str(worker.address), "--policy", policy)
    assert done.code in {1, 7}


async def test_the_proxy_serves_until_sigterm_and_logs_nothing_of_what_it_carried(
    worker: FakeWorker, policy: str
) -> None:
    process = await spawn("proxy", "--server", str(worker.address), "--policy", policy, "--listen", "127.0.0.1:0")
    assert process.stderr is not None
    said = b""
    async with asyncio.timeout(60):
        while b"cache salt" not in said:
            line = await process.stderr.readline()
            assert line, said
            said += line
    assert b"verified 127.0.0.1:" in said
    url = next(word for word in said.decode().split() if word.startswith("http://127.0.0.1:"))
    async with httpx.AsyncClient() as http:
        assert (await http.get(f"{url}/models")).status_code == 200
        # A stream that breaks is what a server would log with a trace.
        worker.answer = mangled(lambda p: p[:2], *sse("canary", "lo"), kind=STREAM)
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post(f"{url}/chat/completions", json={"messages": "canary"})
    process.terminate()
    done = await finished(process)
    assert (done.code, done.out, done.err) == (0, "", "")
