"""The configuration: flags lie over the file, every fault is named, and the digest covers every member."""

import pathlib
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from strongroom.launcher.config import Config, load_config
from strongroom.launcher.errors import LaunchRefused

FLAGS: dict[str, Any] = {"model": "/m", "served_model_name": "tiny"}

# Every member, with a value that is not its default.
OTHERS: dict[str, Any] = {
    "model": "/n",
    "served_model_name": "big",
    "tee": "simulated",
    "listen": "127.0.0.1:1",
    "report_listen": "127.0.0.1:2",
    "engine.max_model_len": 128,
    "engine.max_num_seqs": 2,
    "engine.dtype": "float32",
    "engine.seed": 1,
    "engine.tensor_parallel_size": 2,
    "engine.gpu_memory_utilization": 0.5,
    "engine.cpu_kv_cache_gib": 1,
    "engine.enforce_eager": True,
    "stream.padding": "constant-256",
    "stream.tick_ms": 21,
    "keys.lifetime_seconds": 60,
    "keys.grace_seconds": 60,
    "limits.open_requests": 3,
    "limits.replay_ids": 17,
    "restart.attempts": 1,
    "restart.window_seconds": 1,
    "drain_seconds": 1,
    "start_seconds": 11,
}


def nested(path: str, value: Any) -> dict[str, Any]:
    for part in reversed(path.split(".")):
        value = {part: value}
    return dict(value)


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "strongroom.yaml"


def load(file: pathlib.Path, document: dict[Any, Any], **flags: Any) -> Config:
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    return load_config(file, flags)


def fault_of(file: pathlib.Path, text: str, **flags: Any) -> str:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(LaunchRefused) as error:
        load_config(file, flags)
    return str(error.value)


def test_flags_override_the_file_and_unset_flags_do_not(file: pathlib.Path) -> None:
    document = {**FLAGS, "listen": "127.0.0.1:1", "tee": "tdx"}
    config = load(file, document, listen="127.0.0.1:9", tee=None, model=pathlib.Path("/flag"))
    assert (config.listen, config.tee, config.model) == ("127.0.0.1:9", "tdx", pathlib.Path("/flag"))


def test_flags_alone_are_enough() -> None:
    config = load_config(None, FLAGS)
    assert (config.tee, config.listen, config.report_listen) == ("auto", "0.0.0.0:8443", "0.0.0.0:8444")


def test_what_is_missing_is_named_with_its_flag() -> None:
    with pytest.raises(LaunchRefused, match=r"--model\n(.*\n)*.*--served-model-name") as error:
        load_config(None, {"model": None})
    assert "docs/configuration.md" in str(error.value)


@pytest.mark.parametrize("place", ["", "engine.", "stream.", "keys.", "limits.", "restart."])
def test_an_unknown_key_is_refused_by_name(file: pathlib.Path, place: str) -> None:
    text = yaml.safe_dump(FLAGS | nested(f"{place}trust_remote_code", True))
    assert f"{place}trust_remote_code: is not a setting" in fault_of(file, text)


def test_every_fault_is_reported(file: pathlib.Path) -> None:
    document = {"tee": "sgx", "listen": "8443", "keys": {"grace_seconds": 0}, "limits": {"replay_ids": "many"}}
    message = fault_of(file, yaml.safe_dump(document | {"stream": {"padding": "bucket-1"}, "oops": 1}))
    for place in ("model", "served_model_name", "tee", "listen", "keys.grace_seconds", "limits.replay_ids", "oops"):
        assert f"\n  {place}:" in message
    assert "\n  stream:" in message


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("listen", 8443),
        ("listen", "host"),
        ("listen", "host:65536"),
        ("listen", "::1:80"),
        ("report_listen", "http://host:80"),
        ("served_model_name", "../etc"),
        ("served_model_name", "two\nlines"),
        ("served_model_name", ""),
        ("engine.max_num_seqs", 0),
        ("engine.gpu_memory_utilization", 1.1),
        ("engine.dtype", "int4"),
        ("stream", {"padding": "bucket-100000"}),
        ("stream", {"padding": "constant-256", "tick_ms": 0}),
        ("keys.lifetime_seconds", 1),
        ("restart.attempts", -1),
        ("start_seconds", 9),
        ("engine", []),
        ("model", None),
    ],
)
def test_a_value_out_of_range_is_refused_at_its_place(file: pathlib.Path, path: str, value: Any) -> None:
    assert f"\n  {path}:" in fault_of(file, yaml.safe_dump(FLAGS | nested(path, value)))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("[::1]:8443", "[::1]:8443"), ("localhost:0", "localhost:0"), ("0.0.0.0:08443", "0.0.0.0:8443")],
)
def test_addresses_are_read(text: str, parsed: str) -> None:
    assert load_config(None, FLAGS | {"listen": text}).listen == parsed


def _members(model: type[BaseModel], prefix: str = "") -> set[str]:
    names: set[str] = set()
    for name, field in model.model_fields.items():
        inner = field.annotation
        is_model = isinstance(inner, type) and issubclass(inner, BaseModel)
        names |= _members(inner, f"{prefix}{name}.") if is_model else {f"{prefix}{name}"}
    return names


def test_the_list_of_members_is_complete() -> None:
    assert set(OTHERS) == _members(Config)


@pytest.mark.parametrize("path", OTHERS)
def test_the_digest_covers_each_member(file: pathlib.Path, path: str) -> None:
    plain = load(file, FLAGS).digest()
    assert plain == load_config(None, FLAGS).digest()
    assert plain.startswith("sha256:")
    assert load(file, FLAGS | nested(path, OTHERS[path])).digest() != plain


@pytest.mark.parametrize(
    "text",
    [
        "- a",
        "just words",
        "a: [",
        "!!python/object/apply:os.system [id]",
        "? [a]\n: b",
        "1: 2",
        "listen: 2024-13-99",
        "listen: !!timestamp x",
        "&a [*a]",
        "model: " + "9" * 5000,
        pytest.param("[" * 3000 + "]" * 3000, id="deep"),
    ],
)
def test_what_is_not_a_configuration_is_refused(file: pathlib.Path, text: str) -> None:
    fault_of(file, text, **FLAGS)


@pytest.mark.parametrize("text", ["", "# only a comment\n", "{}"])
def test_an_empty_file_sets_nothing(file: pathlib.Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    assert load_config(file, FLAGS) == load_config(None, FLAGS)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: pathlib.Path) -> None:
    for path in (tmp_path, tmp_path / "missing.yaml"):
        with pytest.raises(LaunchRefused, match="cannot read the configuration"):
            load_config(path, FLAGS)
    (tmp_path / "latin").write_bytes(b"model: \xff")
    with pytest.raises(LaunchRefused, match="not YAML"):
        load_config(tmp_path / "latin", FLAGS)
