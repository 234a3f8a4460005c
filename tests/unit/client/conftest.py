"""What the tests of the client share: a fake worker and a verified channel to it."""

import pathlib
import sys
from collections.abc import AsyncIterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "attestation"))

from fake_worker import POLICY, FakeWorker

from strongroom.client.channel import VerifiedChannel


@pytest.fixture
async def worker() -> AsyncIterator[FakeWorker]:
    made = FakeWorker()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
async def channel(worker: FakeWorker) -> AsyncIterator[VerifiedChannel]:
    """A channel whose policy accepts the fake worker."""
    async with VerifiedChannel(worker.address, POLICY) as made:
        yield made
