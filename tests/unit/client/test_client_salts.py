"""Salts on the client's side: files that others could read are refused, and every body leaves with a salt."""

import json
import os
import pathlib
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strongroom.client.salts import BodyRefused, Salter, SaltFileRefused, read_salt_file
from strongroom.protocol.cache import check_cache_salt

SALT = "KnFpSI-Ahpxnw9ZrUT8bo3oqmRQ9qCDnTl5uis4cd4M"
OWN = "x7wYpm2JQldYcWx_D7vZ4PrXPZJeywlTGyP5OvamKSQ"


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "salt"
    path.write_text(SALT + "\n", encoding="ascii")
    path.chmod(0o600)
    return path


def refusal_of(path: pathlib.Path) -> str:
    with pytest.raises(SaltFileRefused) as error:
        read_salt_file(path)
    assert SALT not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_that_only_its_owner_can_read_gives_its_salt(file: pathlib.Path, mode: int) -> None:
    file.chmod(mode)
    assert read_salt_file(file) == SALT


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666, 0o777])
def test_a_file_that_others_can_touch_is_refused_with_the_remedy(file: pathlib.Path, mode: int) -> None:
    file.chmod(mode)
    assert "chmod 600" in refusal_of(file)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(file: pathlib.Path) -> None:
    os.chown(file, 65534, 65534)
    refusal_of(file)


def test_a_link_counts_as_what_it_leads_to(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)
    assert read_salt_file(link) == SALT
    file.chmod(0o644)
    refusal_of(link)
    link.unlink()
    link.symlink_to(tmp_path)
    refusal_of(link)


@pytest.mark.parametrize("name", [".", "missing", "missing/salt"])
def test_what_is_no_file_is_refused(tmp_path: pathlib.Path, name: str) -> None:
    assert "cannot read" in refusal_of(tmp_path / name)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"short",
        SALT.encode()[:-1],
        b"A" * 43,
        (SALT + "\n" + SALT).encode(),
        SALT.encode() + b"\xff",
        SALT.encode() + b"\0",
        b"\xff\xfe" + SALT.encode("utf-16-le"),
        SALT.encode() * 4,
        b" ".join([SALT.encode()] * 500),
    ],
)
def test_a_file_without_a_good_salt_is_refused_unquoted(file: pathlib.Path, content: bytes) -> None:
    file.write_bytes(content)
    message = refusal_of(file)
    assert str(file) in message
    assert SALT[:12] not in message


# Salter ---------------------------------------------------------------------------------------------------------


def salted(salter: Salter, body: Any) -> tuple[dict[str, Any], bool]:
    raw, cache = salter.salted(json.dumps(body).encode())
    assert not cache.offload_cpu
    assert not cache.offload_disk
    return json.loads(raw), cache.reuse


def test_without_any_salt_each_request_gets_a_fresh_one_that_is_not_for_reuse() -> None:
    salter = Salter()
    bodies = [salted(salter, {"a": 1}) for _ in range(20)]
    assert len({body["cache_salt"] for body, _ in bodies}) == 20
    for body, reuse in bodies:
        assert check_cache_salt(body["cache_salt"])
        assert body["a"] == 1
        assert not reuse


def test_a_null_salt_is_no_salt() -> None:
    body, reuse = salted(Salter(), {"cache_salt": None})
    assert check_cache_salt(body["cache_salt"])
    assert not reuse


def test_the_configured_salt_is_used_and_for_reuse() -> None:
    for body in ({}, {"cache_salt": None}):
        assert salted(Salter(SALT), body) == ({"cache_salt": SALT}, True)


@pytest.mark.parametrize("configured", [None, SALT])
@pytest.mark.parametrize("own", [OWN, "", "weak", 7, [], False])
def test_the_bodys_own_salt_wins_and_is_judged_by_the_worker(configured: str | None, own: object) -> None:
    """A weak one must not be replaced in silence: the application believes in a scope that it would not get."""
    assert salted(Salter(configured), {"cache_salt": own}) == ({"cache_salt": own}, True)


@settings(deadline=None, max_examples=80)
@given(
    body=st.dictionaries(
        st.text(max_size=5).filter(lambda name: name != "cache_salt"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=6,
        ),
        max_size=4,
    )
)
@example(body={"\ud800": "\udfff", "n": 10**400, "f": 1e-320})
def test_nothing_else_of_the_body_changes(body: dict[str, Any]) -> None:
    assert salted(Salter(SALT), body)[0] == body | {"cache_salt": SALT}


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"{}x", b"\xff{}", b"[]", b'"{}"', b"1", b"null", b"{'a':1}", b'{"a":' + b"9" * 5000 + b"}"]
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BodyRefused):
        Salter().salted(raw)


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_a_body_nested_to_any_depth_is_salted_or_refused(opening: bytes, closing: bytes) -> None:
    outcomes = set()
    for depth in [*range(1, 1100), 100_000]:
        try:
            Salter().salted(b'{"a":' + opening * depth + b"1" + closing * depth + b"}")
            outcomes.add("salted")
        except BodyRefused:
            outcomes.add("refused")
    assert outcomes == {"salted", "refused"}
