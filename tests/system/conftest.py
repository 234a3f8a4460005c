"""One real service - launcher, front end, vLLM with a tiny random model - shared by every test of this folder."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest

from strongroom.attestation.policy import Policy, load_policy
from strongroom.client.channel import VerifiedChannel
from strongroom.protocol.address import Address
from tests import models
from tests.service import Service, policy_document, proxy, write_policy

NAME = "tiny"
# Short enough that keys rotate while the suite runs, long enough that a test sees one state of them.
KEY_LIFETIME_SECONDS = 12
KEY_GRACE_SECONDS = 300
DRAIN_SECONDS = 15
ENGINE = {"max_model_len": 8192, "max_num_seqs": 64, "cpu_kv_cache_gib": 1, "enforce_eager": True}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What kills processes comes last."""
    items.sort(key=lambda item: "lifecycle" in item.path.name)


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture(scope="session")
def model() -> Path:
    return models.tiny()


@pytest.fixture(scope="session")
def _reference_process(model: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """vLLM alone, answering the same requests; it starts beside the service."""
    with (folder / "reference.json").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.reference", str(model), NAME, json.dumps(ENGINE)],
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    yield process
    process.kill()
    process.wait()


@pytest.fixture(scope="session")
def reference(_reference_process: subprocess.Popen[bytes], folder: Path) -> dict[str, str]:
    """Answer texts of vLLM's own serving, by the name of the request."""
    assert _reference_process.wait(300) == 0, "the reference engine failed"
    return dict(json.loads((folder / "reference.json").read_text().splitlines()[-1]))


@pytest.fixture(scope="session")
def service(model: Path, folder: Path, _reference_process: object) -> Iterator[Service]:
    settings = {
        "engine": ENGINE,
        "keys": {"lifetime_seconds": KEY_LIFETIME_SECONDS, "grace_seconds": KEY_GRACE_SECONDS},
        "drain_seconds": DRAIN_SECONDS,
    }
    with Service(model, NAME, folder, "--verbose", **settings) as service:
        yield service.wait()


@pytest.fixture(scope="session")
def policy_path(model: Path, folder: Path) -> Path:
    return write_policy(folder / "policy.yaml", policy_document(model, NAME))


@pytest.fixture(scope="session")
def policy(policy_path: Path) -> Policy:
    return load_policy(policy_path)


@pytest.fixture(scope="session")
async def channel(service: Service, policy: Policy) -> AsyncIterator[VerifiedChannel]:
    async with VerifiedChannel(Address.parse(service.address), policy) as channel:
        yield channel


@pytest.fixture(scope="session")
def base_url(service: Service, policy_path: Path) -> Iterator[str]:
    """The proxy, as an application sees it."""
    with proxy(service.address, policy_path) as url:
        yield url


@pytest.fixture(scope="session")
def client(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key="unused", max_retries=0)


@pytest.fixture(scope="session")
def async_client(base_url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base_url, api_key="unused", max_retries=0)
