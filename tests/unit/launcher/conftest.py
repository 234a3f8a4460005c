"""What the tests of the launcher share: a folder that looks like a model, and the helpers of the attestation tests."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "attestation"))


@pytest.fixture
def model_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder that passes the checks; no engine could load it."""
    folder = tmp_path / "model"
    (folder / "nested").mkdir(parents=True)
    for name, content in {
        "config.json": b"{}",
        "model.safetensors": b"weights",
        "tokenizer.json": b"tokens",
        "nested/extra.json": b"extra",
    }.items():
        (folder / name).write_bytes(content)
    return folder
