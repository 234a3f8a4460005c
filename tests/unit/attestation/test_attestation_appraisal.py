"""Appraisal: the honest worker passes, and each check has a mutant that it alone catches."""

import contextlib
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from bundles import NONCE, NOW, Case, attest, digest, identity, key_claim, put
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strongroom.attestation.appraisal import CLOCK_TOLERANCE_SECONDS, Appraisal, appraise
from strongroom.attestation.errors import AppraisalRefused
from strongroom.attestation.policy import Policy
from strongroom.protocol import canonical
from strongroom.protocol.keys import SUITE_NAME
from strongroom.protocol.limits import MAX_CLAIMS_BYTES
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle, Endorsement, Evidence

CPU_TIER = {"medium": "cpu", "bytes": 9, "encryption": "AES-256-GCM", "key": "salt"}
GPU_TIER = {"medium": "gpu", "bytes": 9, "encryption": None, "key": None}
DEVICE = {"type": "nvidia-gpu", "index": 0, "architecture": "HOPPER", "evidence": digest("gpu")}
SHORT_KEY = {"key_id": "0" * 32, "suite": SUITE_NAME, "public_key": "AAAA", "not_before": NOW, "not_after": NOW + 9}


def test_the_honest_worker_passes_and_its_keys_come_back_in_order() -> None:
    worker = Case().appraise()
    assert worker.appraisal.verdict == "pass"
    assert [key.key_id for key in worker.keys] == [identity(name).public.key_id for name in ("current", "next")]
    assert worker.claims.model.name == "tiny"
    assert {check.name for check in worker.appraisal.checks if check.insecure} == {"tee.type"}
    # What --json prints is JSON.
    assert json.loads(json.dumps(worker.appraisal.as_json()))["verdict"] == "pass"


def test_simulated_evidence_is_refused_by_name_unless_the_policy_allows_it() -> None:
    case = Case()
    del case.policy["insecure_allow_simulated"]
    assert case.failed() == {"tee.type"}
    with pytest.raises(AppraisalRefused, match=r"tee\.type: simulated .*proves nothing"):
        case.appraise()


def test_an_appraisal_without_findings_is_no_pass() -> None:
    assert Appraisal((), NOW).verdict == "fail"


# Nonce and evidence ---------------------------------------------------------------------------------------------


def test_an_answer_to_another_nonce_is_refused() -> None:
    assert Case().failed(nonce=bytes(32)) == {"tee.report_data"}


def test_an_answer_to_another_verifier_of_the_same_round_is_refused() -> None:
    assert Case().failed(nonce=bytes([1]) * 16) == {"tee.report_data"}


def _resign(bundle: AttestationBundle) -> None:
    other = attest(bundle.claims, [bytes(16)], 0)
    bundle.tee.CopyFrom(other.tee)


def _flip(bundle: AttestationBundle, byte: int) -> None:
    report = bytearray(bundle.tee.report)
    report[byte] ^= 1
    bundle.tee.report = bytes(report)


def _set(**fields: Any) -> Callable[[AttestationBundle], None]:
    def spoil(bundle: AttestationBundle) -> None:
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(bundle, name)[:]
                getattr(bundle, name).extend(value)
            else:
                setattr(bundle, name, value)

    return spoil


def _flip_path(bundle: AttestationBundle) -> None:
    bundle.nonce_path[-1] = bytes(32)


def _swap_claims(bundle: AttestationBundle) -> None:
    """Other claims, just as well formed."""
    bundle.claims = bundle.claims.replace(b'"note":"free"', b'"note":"fred"')


SPOILED: dict[str, tuple[Callable[[AttestationBundle], None], set[str]]] = {
    "a hash of the path changed": (_flip_path, {"tee.report_data"}),
    "no path": (_set(nonce_path=[]), {"nonce"}),
    "a hash of the path too short": (_set(nonce_path=[b"short"]), {"nonce"}),
    "another index": (_set(nonce_index=0), {"tee.report_data"}),
    "index beyond the round": (_set(nonce_index=99), {"nonce"}),
    "an empty round": (_set(nonce_count=0), {"nonce"}),
    "a round above the limit": (_set(nonce_count=2**31), {"nonce"}),
    "one byte of the claims changed": (_swap_claims, {"tee.report_data"}),
    "claims not canonical": (lambda b: _set(claims=b.claims + b" ")(b), {"tee.report_data", "claims"}),
    "no claims": (_set(claims=b""), {"tee.report_data", "claims"}),
    "claims above the limit": (_set(claims=b" " * (MAX_CLAIMS_BYTES + 1)), {"tee.report_data", "claims"}),
    "report signed over other data": (_resign, {"tee.report_data"}),
    "a bit of the signing key flipped": (lambda b: _flip(b, 0), {"tee.evidence"}),
    "a bit of the report data flipped": (lambda b: _flip(b, 40), {"tee.evidence"}),
    "a bit of the signature flipped": (lambda b: _flip(b, 159), {"tee.evidence"}),
    "report cut short": (lambda b: b.tee.MergeFrom(Evidence(report=b.tee.report[:-1])), {"tee.evidence"}),
    "no evidence": (lambda b: b.ClearField("tee"), {"tee.evidence", "tee.type", "claims.tee.type"}),
    "evidence of an unknown type": (
        lambda b: b.tee.MergeFrom(Evidence(type="enclave-9")),
        {"tee.evidence", "tee.type", "claims.tee.type"},
    ),
    "evidence of a type not verified yet": (
        lambda b: b.tee.MergeFrom(Evidence(type="tdx")),
        {"tee.evidence", "claims.tee.type"},
    ),
    "evidence of a type that the policy does not name": (
        lambda b: b.tee.MergeFrom(Evidence(type="azure-vtpm")),
        {"tee.evidence", "tee.type", "claims.tee.type"},
    ),
    "device evidence in the bundle": (
        lambda b: b.devices.append(Evidence(type="nvidia-gpu", report=b"x")),
        {"devices.evidence"},
    ),
}


@pytest.mark.parametrize("name", SPOILED)
def test_a_spoiled_bundle_fails_exactly_the_checks_that_look_at_the_part(name: str) -> None:
    spoil, failing = SPOILED[name]
    assert Case(spoil=spoil).failed() == failing


# Claims ---------------------------------------------------------------------------------------------------------

MUTANTS: list[tuple[str, Any, set[str]]] = [
    ("tee.type", "tdx", {"claims.tee.type"}),
    ("devices", [DEVICE], {"claims.devices"}),
    ("model.name", "tiny2", {"model.name"}),
    ("model.digest", digest("poisoned"), {"model.digest"}),
    ("engine.name", "sglang", {"engine.name"}),
    ("engine.version", "0.31.9", {"engine.version"}),
    ("engine.digest", digest("poisoned"), {"engine.digest"}),
    ("engine.arguments.enable_prefix_caching", False, {"engine.arguments.enable_prefix_caching"}),
    ("engine.arguments.enable_prefix_caching", 1, {"engine.arguments.enable_prefix_caching"}),
    ("engine.arguments.max_num_seqs", True, {"engine.arguments.max_num_seqs"}),
    ("engine.arguments.max_num_seqs", "1", {"engine.arguments.max_num_seqs"}),
    ("engine.arguments.kv_connector", "LMCache", {"engine.arguments.kv_connector"}),
    ("engine.arguments.kv_connector", False, {"engine.arguments.kv_connector"}),
    ("engine.arguments.layers", [1], {"engine.arguments.layers"}),
    ("engine.arguments.layers", [True, 2], {"engine.arguments.layers"}),
    (
        "engine.arguments",
        {"max_num_seqs": 1, "layers": [1, 2]},
        {"engine.arguments.enable_prefix_caching", "engine.arguments.kv_connector"},
    ),
    ("cache.tiers", [GPU_TIER, CPU_TIER], {"cache.tiers.cpu"}),
    ("cache.tiers", [CPU_TIER | {"medium": "disk"}], {"cache.tiers.disk"}),
    ("stream", {"padding": "none", "tick_ms": 20}, {"stream"}),
    ("stream", {"padding": "bucket-128", "tick_ms": 20}, {"stream"}),
    ("stream", {"padding": "bucket-256", "tick_ms": 19}, {"stream"}),
    ("stream", {"padding": "constant-128", "tick_ms": 50}, {"stream"}),
    ("launcher.version", "0.0.9", {"launcher.version"}),
    ("launcher.config", digest("poisoned"), {"launcher.config"}),
    ("keys", [key_claim(identity("current")), key_claim(identity("current"))], {"claims.keys"}),
    ("cache.salt", "optional", {"claims"}),
    ("cache.hash", "builtin", {"claims"}),
    ("version", 2, {"claims"}),
    ("version", True, {"claims"}),
    ("keys", [], {"claims"}),
]


@pytest.mark.parametrize(("path", "value", "failing"), MUTANTS, ids=lambda v: str(v)[:50] if v else repr(v))
def test_a_mutant_of_the_claims_fails_exactly_its_check(path: str, value: Any, failing: set[str]) -> None:
    case = Case()
    put(case.claims, path, value)
    assert case.failed() == failing


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("stream", {"padding": "constant-512", "tick_ms": 40}),
        ("engine.arguments.not_in_the_policy", True),
        ("info", {"anything": ["goes"]}),
        ("keys", [key_claim(identity("current"))]),
    ],
)
def test_what_a_policy_does_not_forbid_passes(path: str, value: Any) -> None:
    case = Case()
    put(case.claims, path, value)
    assert case.appraise().appraisal.verdict == "pass"


@pytest.mark.parametrize("position", [0, 1])
def test_a_key_id_that_is_not_the_digest_of_the_key_is_refused(position: int) -> None:
    case = Case()
    case.claims["keys"][position]["key_id"] = identity("stranger").public.key_id.hex()
    assert f"claims.keys[{position}].key_id" in case.failed()


def test_a_key_under_another_keys_id_is_refused() -> None:
    """The substitution of a man in the middle who cannot change the id."""
    case = Case()
    case.claims["keys"][0]["public_key"] = key_claim(identity("stranger"))["public_key"]
    assert "claims.keys[0].key_id" in case.failed()


def test_a_public_key_of_another_length_is_refused() -> None:
    case = Case()
    case.claims["keys"] = [SHORT_KEY]
    assert "claims.keys[0].key_id" in case.failed()


def test_a_key_of_another_suite_is_refused() -> None:
    case = Case()
    case.claims["keys"][0]["suite"] = "X25519/HKDF-SHA256/AES-256-GCM"
    assert {"claims.keys[0].suite", "claims.keys[0].key_id"} <= case.failed()


def test_keys_that_are_bad_are_not_said_to_be_repeated() -> None:
    case = Case()
    case.claims["keys"][0]["key_id"] = "0" * 32
    assert case.failed() == {"claims.keys[0].key_id"}


@pytest.mark.parametrize(
    ("now", "accepted"),
    [
        (NOW - CLOCK_TOLERANCE_SECONDS - 1, False),
        (NOW - CLOCK_TOLERANCE_SECONDS, True),
        (NOW + 3600 + CLOCK_TOLERANCE_SECONDS, True),
        (NOW + 3600 + CLOCK_TOLERANCE_SECONDS + 1, False),
        (0, False),
        (4e9, False),
    ],
)
def test_the_current_key_must_be_valid_now_within_the_clock_tolerance(now: float, accepted: bool) -> None:
    case = Case(now=now)
    if accepted:
        case.appraise()
    else:
        assert case.failed() == {"claims.keys[0].validity"}


def test_a_key_valid_until_the_end_of_time_is_no_crash() -> None:
    case = Case()
    case.claims["keys"][0] |= {"not_after": 2**53 - 1}
    case.appraise()
    case.claims["keys"][0] |= {"not_before": 2**53 - 1}
    assert case.failed() == {"claims.keys[0].validity"}


@pytest.mark.parametrize("medium", ["cpu", "disk"])
@pytest.mark.parametrize(
    "tier", [{"encryption": None, "key": None}, {"encryption": "AES-256-GCM", "key": None}, {"encryption": None}]
)
def test_an_allowed_tier_must_be_encrypted_under_the_salt(medium: str, tier: dict[str, Any]) -> None:
    case = Case()
    case.policy["cache"]["tiers"] = ["gpu", "cpu", "disk"]
    case.claims["cache"]["tiers"] = [GPU_TIER, CPU_TIER | {"medium": medium}]
    case.appraise()
    case.claims["cache"]["tiers"] = [GPU_TIER, CPU_TIER | {"medium": medium} | tier]
    assert case.failed() == {f"cache.tiers.{medium}.encryption"}


# Policy demands -------------------------------------------------------------------------------------------------

WAIVABLE = [
    "model.name",
    "model.digest",
    "engine.name",
    "engine.version",
    "engine.arguments",
    "engine.digest",
    "launcher.version",
    "launcher.config",
]


@pytest.mark.parametrize("path", WAIVABLE)
def test_a_check_that_is_waived_passes_anything_and_is_reported_insecure(path: str) -> None:
    case = Case()
    value = {} if path == "engine.arguments" else digest("x") if path.endswith(("digest", "config")) else "anything"
    put(case.claims, path, value)
    assert any(name.startswith(path) for name in case.failed())
    put(case.policy, path, "insecure_any")
    appraisal = case.appraise().appraisal
    assert {check.name for check in appraisal.checks if check.insecure} == {"tee.type", path}


def test_a_policy_without_padding_is_reported_insecure() -> None:
    case = Case()
    case.policy["stream"] = {"padding": "none", "tick_ms": 0}
    assert {check.name for check in case.appraise().appraisal.checks if check.insecure} == {"tee.type", "stream"}


def test_the_word_in_a_list_is_a_name_and_no_waiver() -> None:
    case = Case()
    case.policy["model"]["name"] = ["insecure_any"]
    assert case.failed() == {"model.name"}


def test_every_failure_is_reported_not_only_the_first() -> None:
    case = Case(now=NOW - 10_000, spoil=lambda b: b.devices.append(Evidence(type="x")))
    expected = {"devices.evidence", "claims.keys[0].validity"}
    for path, value, failing in MUTANTS:
        if path.count(".") and not path.startswith(("cache", "engine.arguments", "keys")):
            put(case.claims, path, value)
            expected |= failing
    failed = case.failed(nonce=bytes(32))
    assert failed == expected | {"tee.report_data"}
    with pytest.raises(AppraisalRefused) as refused:
        case.appraise(bytes(32))
    assert all(name in str(refused.value) for name in failed)


def test_a_refused_appraisal_keeps_the_findings_that_passed() -> None:
    case = Case()
    case.claims["model"]["name"] = "evil"
    verdicts = {check.name: check.verdict for check in case.refusal().checks}
    assert verdicts["tee.report_data"] == verdicts["model.digest"] == "pass"
    assert verdicts["model.name"] == "fail"


# Arbitrary input ------------------------------------------------------------------------------------------------

EVIDENCE = st.builds(
    Evidence,
    type=st.sampled_from(["simulated", "tdx", "", "x\x1b[2J"]) | st.text(max_size=5),
    report=st.binary(max_size=200) | st.binary(min_size=160, max_size=160),
    certificates=st.lists(st.binary(max_size=3), max_size=2),
    endorsements=st.lists(st.builds(Endorsement, type=st.text(max_size=3), data=st.binary(max_size=3)), max_size=1),
)
BUNDLES = st.builds(
    AttestationBundle,
    claims=st.binary(max_size=200) | st.just(canonical.encode(Case().claims)),
    tee=EVIDENCE,
    devices=st.lists(EVIDENCE, max_size=2),
    nonce_path=st.lists(st.binary(max_size=40) | st.binary(min_size=32, max_size=32), max_size=4),
    nonce_index=st.integers(0, 2**32 - 1) | st.integers(0, 4),
    nonce_count=st.integers(0, 2**32 - 1) | st.integers(0, 5),
)


@settings(deadline=None, max_examples=150)
@given(bundle=BUNDLES, nonce=st.binary(max_size=70))
@example(bundle=AttestationBundle(), nonce=b"")
def test_an_arbitrary_bundle_is_refused_with_findings_and_nothing_else(bundle: AttestationBundle, nonce: bytes) -> None:
    with pytest.raises(AppraisalRefused) as refused:
        appraise(bundle, nonce, Policy.model_validate(Case().policy), now=NOW)
    assert any(check.verdict == "fail" for check in refused.value.appraisal.checks)


def _paths(value: Any, prefix: str = "") -> list[str]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    own = [prefix.rstrip(".")] if prefix else []
    return own + [path for name, inner in items for path in _paths(inner, f"{prefix}{name}.")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e9, 1e9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=250)
@given(path=st.sampled_from(_paths(Case().claims)), value=JSON)
@example(path="keys.0.public_key", value="A")
@example(path="stream.tick_ms", value=True)
@example(path="model.digest", value=digest("model") + "\n")
def test_no_attested_value_of_a_member_can_do_more_than_fail_a_check(path: str, value: Any) -> None:
    """The bundle is signed over the mutant, so only the checks on content stand in its way."""
    case = Case()
    before = copy.deepcopy(case.claims)
    put(case.claims, path, value)
    free = ("info", "boot_id", "signing_key", "keys", "cache", "model.signature", "engine.arguments", "stream")
    with contextlib.suppress(AppraisalRefused):
        case.appraise()
        assert path.startswith(free) or case.claims == before


def test_the_nonce_of_the_case_is_really_in_the_round() -> None:
    """Guards the helper: the mutants above start from a path that matters."""
    assert len(Case().bundle().nonce_path) > 1
    assert Case().nonce == NONCE
