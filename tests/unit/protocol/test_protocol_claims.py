"""Claims: closed, complete and canonical, with nothing that a verifier could overlook (section 2)."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol import canonical, claims
from strongroom.protocol.canonical import base64url
from strongroom.protocol.errors import MalformedClaims, MalformedKey
from strongroom.protocol.keys import SUITE_NAME, IdentityKey
from strongroom.protocol.limits import MAX_CLAIMS_BYTES

DIGEST = "sha256:" + "0a" * 32
EXAMPLE: dict[str, Any] = {
    "version": 1,
    "boot_id": "0b" * 16,
    "keys": [{"key_id": "0c" * 16, "suite": SUITE_NAME, "public_key": "AAAA", "not_before": 0, "not_after": 3600}],
    "signing_key": {"algorithm": "Ed25519", "public_key": "AAAA"},
    "model": {"name": "m", "digest": DIGEST, "signature": {"method": "sigstore", "identity": "who"}},
    "engine": {"name": "vllm", "version": "0.32.0", "arguments": {"a": [1, "x", None, {"b": 0.5}]}, "digest": DIGEST},
    "cache": {
        "salt": "required",
        "hash": "sha256",
        "tiers": [{"medium": "disk", "bytes": 1, "encryption": "AES-256-GCM", "key": "salt"}],
    },
    "stream": {"padding": "bucket-256", "tick_ms": 20},
    "devices": [{"type": "nvidia-gpu", "index": 0, "architecture": "HOPPER", "evidence": DIGEST}],
    "tee": {"type": "tdx"},
    "launcher": {"version": "0.1.0", "config": DIGEST},
    "info": {"free": {"to": ["say", "anything"]}},
}


def objects(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all closed objects of the example."""
    if isinstance(value, list):
        return [found for i, item in enumerate(value) for found in objects(item, (*path, i))]
    if not isinstance(value, dict) or path in {("info",), ("engine", "arguments")}:
        return []
    return [path, *(found for name, item in value.items() for found in objects(item, (*path, name)))]


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def changed(path: tuple[str | int, ...], value: Any) -> bytes:
    example = copy.deepcopy(EXAMPLE)
    at(example, path[:-1])[path[-1]] = value
    return canonical.encode(example)


OBJECTS = objects(EXAMPLE)
MEMBERS = [(*path, name) for path in OBJECTS for name in at(EXAMPLE, path)]


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path)) or "claims"


def test_the_example_covers_every_member_of_the_page() -> None:
    assert len(MEMBERS) == 12 + 5 + 2 + 3 + 2 + 4 + 3 + 4 + 2 + 4 + 1 + 2


def test_claims_come_back_byte_for_byte() -> None:
    raw = canonical.encode(EXAMPLE)
    assert claims.parse(raw).encode() == raw


@pytest.mark.parametrize("path", MEMBERS, ids=dotted)
def test_claims_without_a_member_are_refused(path: tuple[str | int, ...]) -> None:
    example = copy.deepcopy(EXAMPLE)
    del at(example, path[:-1])[path[-1]]
    with pytest.raises(MalformedClaims):
        claims.parse(canonical.encode(example))


@pytest.mark.parametrize("path", OBJECTS, ids=dotted)
def test_claims_with_a_member_too_many_are_refused(path: tuple[str | int, ...]) -> None:
    with pytest.raises(MalformedClaims):
        claims.parse(changed((*path, "note"), "x"))


FREE_TEXT = {
    *[("keys", 0, "suite"), ("model", "name"), ("model", "signature", "method"), ("model", "signature", "identity")],
    *[("engine", "name"), ("engine", "version"), ("devices", 0, "type"), ("devices", 0, "architecture")],
    ("launcher", "version"),
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(path, value, id=f"{dotted(path)}-{kind}")
        for path in MEMBERS
        for kind, value in {"text": "\u00e9", "negative": -1, "fraction": 1.5, "list": [[]], "false": False}.items()
        if kind != "text" or path not in FREE_TEXT
    ],
)
def test_claims_with_a_member_of_another_kind_are_refused(path: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(MalformedClaims):
        claims.parse(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 0),
        (("version",), 2),
        (("boot_id",), "0b" * 15),
        (("boot_id",), "0B" * 16),
        (("boot_id",), "0b" * 16 + "\n"),
        (("keys",), []),
        (("keys",), EXAMPLE["keys"] * 9),
        (("keys", 0, "key_id"), "0c" * 17),
        (("keys", 0, "key_id"), "0C" * 16),
        (("keys", 0, "public_key"), "AAA="),
        (("keys", 0, "public_key"), "AA+/"),
        (("keys", 0, "public_key"), "A"),
        (("keys", 0, "public_key"), "AB"),
        (("keys", 0, "public_key"), ""),
        (("keys", 0, "public_key"), "AAAA\n"),
        (("keys", 0, "not_after"), 1e21),
        (("signing_key", "algorithm"), "ed25519"),
        (("model", "name"), ""),
        (("model", "name"), "x" * 4097),
        (("model", "digest"), DIGEST[7:]),
        (("model", "digest"), DIGEST + "\n"),
        (("model", "digest"), DIGEST.upper()),
        (("model", "digest"), "sha512:" + "0a" * 32),
        (("cache", "salt"), "optional"),
        (("cache", "hash"), "builtin"),
        (("cache", "tiers", 0, "medium"), "network"),
        (("cache", "tiers", 0, "encryption"), "AES-128-GCM"),
        (("cache", "tiers", 0, "key"), "host"),
        (("stream", "padding"), "bucket-63"),
        (("stream", "padding"), "whatever"),
        (("stream", "tick_ms"), 1001),
        (("stream",), {"padding": "constant-512", "tick_ms": 0}),
        (("tee", "type"), "sgx"),
        (("devices", 0, "index"), 2**16),
    ],
)
def test_claims_with_a_value_outside_its_range_are_refused(path: tuple[str | int, ...], value: Any) -> None:
    with pytest.raises(MalformedClaims):
        claims.parse(changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "signature"), None),
        (("cache", "tiers"), []),
        (("cache", "tiers", 0, "encryption"), None),
        (("cache", "tiers", 0, "key"), None),
        (("devices",), []),
        (("keys",), EXAMPLE["keys"] * 2),
        (("engine", "arguments"), {}),
        (("info",), {}),
        (("info", "extra"), 1e21),
        (("stream",), {"padding": "none", "tick_ms": 0}),
        (("model", "name"), "mod\u00e8le \U0001f600"),
    ],
)
def test_claims_with_a_value_inside_its_range_come_back_byte_for_byte(path: tuple[str | int, ...], value: Any) -> None:
    raw = changed(path, value)
    assert claims.parse(raw).encode() == raw


def test_claims_whose_version_is_true_are_refused() -> None:
    with pytest.raises(MalformedClaims):
        claims.parse(changed(("version",), True))


@given(info=st.dictionaries(st.text(max_size=5), st.recursive(st.integers(0, 9) | st.text(max_size=5), st.lists)))
def test_whatever_stands_in_info_comes_back(info: dict[str, Any]) -> None:
    raw = changed(("info",), info)
    assert claims.parse(raw).encode() == raw


@given(raw=st.binary(max_size=100))
def test_arbitrary_bytes_are_malformed_claims(raw: bytes) -> None:
    with pytest.raises(MalformedClaims):
        claims.parse(raw)


@given(path=st.sampled_from(MEMBERS), value=st.recursive(st.none() | st.integers(0, 3) | st.text(max_size=3), st.lists))
def test_an_arbitrary_member_gives_the_same_bytes_again_or_malformed_claims(
    path: tuple[str | int, ...], value: Any
) -> None:
    raw = changed(path, value)
    try:
        parsed = claims.parse(raw)
    except MalformedClaims:
        return
    assert parsed.encode() == raw


@given(position=st.integers(0, len(canonical.encode(EXAMPLE)) - 1), mask=st.integers(1, 255))
def test_a_changed_byte_gives_other_claims_or_malformed_claims(position: int, mask: int) -> None:
    raw = bytearray(canonical.encode(EXAMPLE))
    raw[position] ^= mask
    try:
        parsed = claims.parse(bytes(raw))
    except MalformedClaims:
        return
    assert parsed.encode() == raw


def test_claims_in_another_order_are_refused() -> None:
    raw = json.dumps(EXAMPLE, separators=(",", ":")).encode()
    assert json.loads(raw) == EXAMPLE
    with pytest.raises(MalformedClaims):
        claims.parse(raw)


def test_claims_above_the_limit_are_refused_before_they_are_parsed() -> None:
    empty = len(changed(("info",), {"a": ""}))
    fitting = changed(("info",), {"a": "x" * (MAX_CLAIMS_BYTES - empty)})
    assert len(fitting) == MAX_CLAIMS_BYTES
    assert claims.parse(fitting).version == 1
    with pytest.raises(MalformedClaims, match="exceed"):
        claims.parse(fitting + b"x")


def test_a_refusal_names_the_member() -> None:
    with pytest.raises(MalformedClaims, match=r"cache\.tiers\.0\.medium"):
        claims.parse(changed(("cache", "tiers", 0, "medium"), "network"))


def with_key(key: IdentityKey, **members: str) -> claims.Key:
    listed = {
        "key_id": key.public.key_id.hex(),
        "suite": SUITE_NAME,
        "public_key": base64url(key.public.public_key),
        "not_before": 0,
        "not_after": 1,
    }
    return claims.parse(changed(("keys",), [listed | members])).keys[0]


def test_a_listed_key_can_be_sealed_to(worker_key: IdentityKey) -> None:
    assert with_key(worker_key).identity() == worker_key.public


def test_a_listed_key_under_another_id_is_refused(worker_key: IdentityKey, next_key: IdentityKey) -> None:
    with pytest.raises(MalformedKey):
        with_key(worker_key, key_id=next_key.public.key_id.hex()).identity()


def test_a_listed_key_of_another_suite_is_refused(worker_key: IdentityKey) -> None:
    with pytest.raises(MalformedKey):
        with_key(worker_key, suite="X25519/HKDF-SHA256/AES-256-GCM").identity()


def test_a_listed_key_of_another_length_is_refused(worker_key: IdentityKey) -> None:
    with pytest.raises(MalformedKey):
        with_key(worker_key, public_key=base64url(worker_key.public.public_key[:-1])).identity()
