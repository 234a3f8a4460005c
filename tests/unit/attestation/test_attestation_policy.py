"""The policy file: what is left out, added, repeated or empty is an error that names its place."""

import pathlib
from typing import Any

import pytest
import yaml
from bundles import policy_document, put
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strongroom.attestation.errors import PolicyError
from strongroom.attestation.policy import Policy, load_policy, parse_policy

MEMBERS = [
    "version",
    "tee",
    "devices",
    "suites",
    "model",
    "model.name",
    "model.digest",
    "engine",
    "engine.name",
    "engine.version",
    "engine.arguments",
    "engine.digest",
    "cache",
    "cache.tiers",
    "stream",
    "stream.padding",
    "stream.tick_ms",
    "launcher",
    "launcher.version",
    "launcher.config",
]
NEVER_WAIVED = ["version", "tee", "devices", "suites", "cache.tiers", "stream.padding", "stream.tick_ms"]
NEVER_WAIVED += ["model", "engine", "cache", "stream", "launcher", "insecure_allow_simulated"]
LISTS = ["tee", "suites", "model.name", "model.digest", "engine.name", "engine.version", "engine.digest"]
LISTS += ["cache.tiers", "launcher.version", "launcher.config"]


def text_with(path: str = "", value: Any = None, **options: bool) -> str:
    document = policy_document(**options)
    if path:
        put(document, path, value)
    return yaml.safe_dump(document)


def fault_of(text: str) -> str:
    with pytest.raises(PolicyError) as error:
        parse_policy(text, "my.yaml")
    message = str(error.value)
    assert message.startswith("my.yaml")
    return message


def places(message: str) -> list[str]:
    return [line.strip().split(":")[0] for line in message.splitlines()[1:]]


def test_a_complete_policy_is_read_as_written() -> None:
    policy = parse_policy(text_with(insecure_allow_simulated=False))
    assert policy == Policy.model_validate(policy_document(insecure_allow_simulated=False))
    assert policy.insecure_allow_simulated is False
    assert parse_policy(text_with()).insecure_allow_simulated is True


def test_the_list_of_members_is_complete() -> None:
    """A member that is added to the policy must be added to the tests below."""
    document = policy_document(insecure_allow_simulated=False)
    nested = {f"{a}.{b}" for a, inner in document.items() if isinstance(inner, dict) for b in inner}
    assert set(MEMBERS) == set(document) | nested
    assert set(Policy.model_fields) == set(document) | {"insecure_allow_simulated"}


@pytest.mark.parametrize("member", MEMBERS)
def test_a_missing_member_is_an_error_that_names_it(member: str) -> None:
    document: Any = policy_document()
    *parents, last = member.split(".")
    inner = document
    for parent in parents:
        inner = inner[parent]
    del inner[last]
    message = fault_of(yaml.safe_dump(document))
    assert places(message) == [member]
    assert "is missing" in message


def test_all_missing_members_are_named_at_once() -> None:
    message = fault_of("version: 1\nmodel: {}\n")
    assert set(places(message)) >= {"tee", "engine", "cache", "stream", "launcher", "model.name", "model.digest"}


@pytest.mark.parametrize("place", ["", "model.", "engine.", "cache.", "stream.", "launcher."])
def test_an_unknown_member_is_an_error_that_names_it(place: str) -> None:
    assert places(fault_of(text_with(f"{place}digets", ["x"]))) == [f"{place}digets"]


@pytest.mark.parametrize("member", LISTS)
def test_an_empty_list_is_an_error(member: str) -> None:
    assert member in fault_of(text_with(member, [], insecure_allow_simulated=False))


def test_an_empty_list_of_tees_is_accepted_only_beside_the_insecure_flag() -> None:
    assert parse_policy(text_with("tee", [])).tee == []


def test_no_demand_on_arguments_must_be_said_as_a_waiver() -> None:
    assert "insecure_any" in fault_of(text_with("engine.arguments", {}))
    assert parse_policy(text_with("engine.arguments", "insecure_any")).engine.arguments == "insecure_any"


@pytest.mark.parametrize("member", NEVER_WAIVED)
@pytest.mark.parametrize("waiver", ["insecure_any", ["insecure_any"], None])
def test_some_checks_cannot_be_waived(member: str, waiver: Any) -> None:
    # The two members of `stream` are judged together.
    place = "stream" if member == "stream.padding" and waiver == "insecure_any" else member
    assert any(named.startswith(place) for named in places(fault_of(text_with(member, waiver))))


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("version", 2),
        ("version", "1"),
        ("version", True),
        ("insecure_allow_simulated", "yes please"),
        ("insecure_allow_simulated", 1),
        ("tee", ["simulated"]),
        ("tee", "tdx"),
        ("suites", ["X25519/HKDF-SHA256/AES-256-GCM"]),
        ("model.name", ""),
        ("model.name", [""]),
        ("model.name", "tiny"),
        ("model.digest", ["sha256:abc"]),
        ("model.digest", ["SHA256:" + "0" * 64]),
        ("model.digest", ["sha256:" + "0" * 64 + "\n"]),
        ("engine.arguments", []),
        ("engine.arguments", "insecure-any"),
        ("cache.tiers", ["tape"]),
        ("stream", {"padding": "bucket-1", "tick_ms": 20}),
        ("stream", {"padding": "bucket-256", "tick_ms": -1}),
        ("stream", {"padding": "constant-256", "tick_ms": 0}),
        ("stream.tick_ms", 20.5),
        ("launcher.config", ["x"]),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_at_its_place(member: str, value: Any) -> None:
    assert any(place.startswith(member) for place in places(fault_of(text_with(member, value))))


@pytest.mark.parametrize(
    "duplicate",
    [
        "insecure_allow_simulated: false\n",
        "model: {name: insecure_any, digest: insecure_any}\n",
        "stream: {padding: none, padding: bucket-256, tick_ms: 20}\n",
    ],
)
def test_a_key_that_is_written_twice_is_an_error(duplicate: str) -> None:
    document = policy_document()
    if duplicate.startswith("stream"):
        del document["stream"]
    text = yaml.safe_dump(document)
    assert "twice" in fault_of(text + duplicate)


def test_a_key_that_is_merged_in_is_an_error() -> None:
    """YAML's merge would be another way to write a member twice."""
    document = policy_document()
    del document["model"]
    text = yaml.safe_dump(document) + "model: {<<: {name: insecure_any}, digest: insecure_any}\n"
    assert "YAML" in fault_of(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "- version: 1",
        "just words",
        "version: [",
        "version: 1\n\tmodel: x",
        "!!python/object/apply:os.system [id]",
        "? [a]\n: b",
        "when: 2024-13-99",
        "when: !!timestamp x",
        "when: !!bool x",
        "when: !!int x",
        "&a [*a]",
        "&a {b: *a}",
        "version: " + "9" * 5000,
        "\x00",
    ],
)
def test_what_is_not_a_policy_is_an_error_of_ours(text: str) -> None:
    fault_of(text)


def test_a_deeply_nested_file_is_an_error_of_ours() -> None:
    fault_of("[" * 3000 + "]" * 3000)


@settings(deadline=None, max_examples=200)
@given(text=st.text(alphabet="ab:-[]{}&*!?|>\n \"'#%1,<", max_size=30) | st.text(max_size=30))
@example("a: !!binary é")
@example("a: !!int x")
@example("a: !!set {b, b}")
@example("a: !!omap [1]")
@example("!!float: 1")
def test_arbitrary_text_is_an_error_of_ours(text: str) -> None:
    fault_of(text)


def test_a_file_is_read_and_named_in_its_errors(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(text_with(), encoding="utf-8")
    assert load_policy(file).insecure_allow_simulated is True
    file.write_text("version: 1", encoding="utf-8")
    with pytest.raises(PolicyError, match=r"policy\.yaml"):
        load_policy(file)


def test_a_file_that_is_not_utf_8_is_an_error_of_ours(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_bytes(b"version: 1 # \xff")
    with pytest.raises(PolicyError, match="UTF-8"):
        load_policy(file)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_an_error_of_ours(tmp_path: pathlib.Path, name: str) -> None:
    with pytest.raises(PolicyError, match="cannot read"):
        load_policy(tmp_path / name)
