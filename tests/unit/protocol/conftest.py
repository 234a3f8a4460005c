"""The hypothesis profile of this folder, the vectors, and keys that several files use."""

import hashlib
import json
import pathlib
from typing import Any

import pytest
from hypothesis import settings

from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.secret import Secret

settings.register_profile("protocol", deadline=None, max_examples=60)
settings.load_profile("protocol")


def _key(name: bytes) -> IdentityKey:
    return IdentityKey(Secret(hashlib.shake_256(name).digest(IdentityKey.SECRET_BYTES)))


@pytest.fixture(scope="session")
def worker_key() -> IdentityKey:
    return _key(b"worker")


@pytest.fixture(scope="session")
def next_key() -> IdentityKey:
    """The second key of the worker that holds `worker_key`."""
    return _key(b"next")


@pytest.fixture(scope="session")
def stranger_key() -> IdentityKey:
    """The key of another worker."""
    return _key(b"stranger")


@pytest.fixture(scope="session")
def vectors() -> dict[str, Any]:
    file = pathlib.Path(__file__).parents[2] / "vectors" / "protocol-v1.json"
    return json.loads(file.read_text(encoding="utf-8"))
