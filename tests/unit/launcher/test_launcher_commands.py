"""`strongroom serve` and `strongroom model` where they refuse: exit code, one message, no traceback."""

import json
import pathlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import Result
from typer.testing import CliRunner

from strongroom.client.main import app

ANY = "127.0.0.1:0"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def refused(result: Result, command: str = "serve") -> str:
    """The one message of a command that refused; it ends by `typer.Exit`, never by an exception of another kind."""
    assert isinstance(result.exception, SystemExit)
    assert "Traceback" not in result.output
    assert result.exit_code == 1
    message = [line for line in result.stderr.splitlines() if not line.startswith("{")]
    assert message[0].startswith(f"strongroom {command}: ")
    assert sum(line.startswith("strongroom ") for line in message) == 1
    return "\n".join(message)


@pytest.fixture
def busy() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"127.0.0.1:{sock.getsockname()[1]}"


def serve(model: object, *arguments: object) -> str:
    return refused(run("serve", "--model", model, "--served-model-name", "tiny", *arguments))


def test_serve_without_a_model_names_the_flags() -> None:
    message = refused(run("serve"))
    assert "--model" in message
    assert "--served-model-name" in message


def test_serve_of_a_folder_that_is_no_model(tmp_path: pathlib.Path) -> None:
    assert "config.json" in serve(tmp_path, "--tee", "simulated", "--listen", ANY, "--report-listen", ANY)


def test_serve_of_pickled_weights(model_folder: pathlib.Path) -> None:
    (model_folder / "pytorch_model.bin").touch()
    assert "pytorch_model.bin" in serve(model_folder, "--tee", "simulated")


@pytest.mark.parametrize("flag", ["--listen", "--report-listen"])
def test_serve_on_a_busy_port_names_the_flag(model_folder: pathlib.Path, busy: str, flag: str) -> None:
    free = {"--listen": ANY, "--report-listen": ANY} | {flag: busy}
    message = serve(model_folder, "--tee", "simulated", *(word for pair in free.items() for word in pair))
    assert f"cannot listen on {busy}" in message
    assert flag in message


@pytest.mark.parametrize("tee", [[], ["--tee", "auto"], ["--tee", "sev-snp"], ["--tee", "tdx"]])
def test_serve_without_the_hardware_says_what_to_do(model_folder: pathlib.Path, tee: list[str]) -> None:
    assert "--tee simulated" in serve(model_folder, *tee)


def test_serve_with_an_unknown_key_in_the_file(model_folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "strongroom.yaml"
    file.write_text("engine: {trust_remote_code: true}\n", encoding="utf-8")
    assert "engine.trust_remote_code: is not a setting" in serve(model_folder, "--config", file)


@pytest.mark.parametrize("address", ["8443", "host", "host:99999"])
def test_serve_on_a_bad_address(model_folder: pathlib.Path, address: str) -> None:
    assert "is not HOST:PORT" in serve(model_folder, "--listen", address)


def test_serve_with_a_choice_that_does_not_exist_is_wrong_usage() -> None:
    result = run("serve", "--tee", "sgx")
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_model_manifest_prints_the_digest_that_policies_name(model_folder: pathlib.Path) -> None:
    result = run("model", "manifest", model_folder)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["digest"].startswith("sha256:")
    assert set(document["files"]) == {"config.json", "model.safetensors", "nested/extra.json", "tokenizer.json"}


def test_model_manifest_of_no_model(tmp_path: pathlib.Path) -> None:
    assert "config.json" in refused(run("model", "manifest", tmp_path), "model manifest")


def test_the_installed_command_refuses_alike(model_folder: pathlib.Path) -> None:
    """Once through the real entry point, whose own handler must not be what speaks."""
    command = pathlib.Path(sys.executable).with_name("strongroom")
    arguments = ["serve", "--model", str(model_folder), "--served-model-name", "tiny"]
    done = subprocess.run([command, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "--tee simulated" in done.stderr
