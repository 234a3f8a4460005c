"""What the tests of the worker share: an engine that is faked behind the names that endpoints use."""

from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeServing

from strongroom.protocol.control.control_pb2 import EngineDescription
from strongroom.worker.engine import Engine


@pytest.fixture
def serving() -> FakeServing:
    return FakeServing()


@pytest.fixture
def engine(serving: FakeServing) -> Engine:
    objects: Any = SimpleNamespace(openai_serving_chat=serving, openai_serving_models=serving)
    return Engine(objects, EngineDescription(), 8192)
