"""Appraisal of a worker's attestation bundle: is this the worker that the policy wants, right now?

Source of the order: docs/protocol.md, section 2. Every check is made and reported, not only the first that fails.

What the caller must do itself: draw the nonce at random for this one call, and seal only to the keys of the
`VerifiedWorker` that comes back.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from strongroom.attestation import simulated
from strongroom.attestation.errors import AppraisalRefused, EvidenceError
from strongroom.attestation.policy import INSECURE_ANY, Policy
from strongroom.protocol import binding, canonical, claims, merkle
from strongroom.protocol.claims import Claims
from strongroom.protocol.errors import MalformedClaims, MalformedKey, MalformedNonce
from strongroom.protocol.keys import PublicIdentity
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle

# Clocks of client and worker may differ by this much before a key's validity is in doubt.
CLOCK_TOLERANCE_SECONDS = 300

T = TypeVar("T")
Verdict = Literal["pass", "fail"]
Area = Literal["evidence", "policy"]


@dataclasses.dataclass(frozen=True)
class Check:
    """One question with its answer; `source` says which rule asks it, `insecure` that a policy waived it."""

    name: str
    expected: str
    seen: str
    verdict: Verdict
    source: str
    area: Area = "policy"
    insecure: bool = False

    def __post_init__(self) -> None:
        # What was seen comes from whoever answered: it is shown, but may not steer a terminal.
        object.__setattr__(self, "seen", "".join(c if c.isprintable() else "?" for c in self.seen))


@dataclasses.dataclass(frozen=True)
class Appraisal:
    """All findings about one bundle, at one time (Unix seconds)."""

    checks: tuple[Check, ...]
    time: float

    @property
    def verdict(self) -> Verdict:
        """`pass` only if there are findings and each of them passes."""
        return "pass" if self.checks and all(check.verdict == "pass" for check in self.checks) else "fail"

    def as_json(self) -> dict[str, Any]:
        """The form that `--json` prints."""
        return {"verdict": self.verdict, "time": int(self.time), "checks": [dataclasses.asdict(c) for c in self.checks]}


@dataclasses.dataclass(frozen=True)
class VerifiedWorker:
    """A worker whose evidence passed; `keys` are what requests may be sealed to, the current one first."""

    claims: Claims
    keys: tuple[PublicIdentity, ...]
    appraisal: Appraisal


def appraise(bundle: AttestationBundle, nonce: bytes, policy: Policy, *, now: float) -> VerifiedWorker:
    """Appraise `bundle` as the answer to `nonce` under `policy`, at `now` (Unix seconds).

    Raises `AppraisalRefused` with all findings unless every check passes.
    """
    findings = _Findings()
    root = findings.attempt("nonce", "protocol 2", lambda: _root(bundle, nonce))
    signed = findings.attempt("tee.evidence", "protocol 2", lambda: _signed_report_data(bundle))
    _tee_type(findings, bundle, policy)
    if root is not None and signed is not None:
        expected = binding.report_data(root, bundle.claims)
        findings.equal("tee.report_data", expected.hex(), signed.hex(), "protocol 2", "evidence")
    parsed = findings.attempt("claims", "protocol 2", lambda: claims.parse(bundle.claims))
    _devices(findings, bundle, parsed)
    keys: list[PublicIdentity] = []
    if parsed is not None:
        findings.equal("claims.tee.type", bundle.tee.type, parsed.tee.type, "protocol 2", "evidence")
        keys = _keys(findings, parsed, policy, now)
        _policy(findings, parsed, policy)
    appraisal = Appraisal(tuple(findings.checks), now)
    if parsed is None or appraisal.verdict != "pass":
        raise AppraisalRefused(appraisal)
    return VerifiedWorker(parsed, tuple(keys), appraisal)


class _Findings:
    def __init__(self) -> None:
        self.checks: list[Check] = []

    def add(self, name: str, expected: str, seen: str, passed: bool, source: str, area: Area = "policy") -> None:
        self.checks.append(Check(name, expected, seen, "pass" if passed else "fail", source, area))

    def equal(self, name: str, expected: str, seen: str, source: str, area: Area = "policy") -> None:
        self.add(name, expected, seen, expected == seen, source, area)

    def one_of(self, name: str, accepted: Iterable[str] | str, seen: str) -> None:
        if accepted == INSECURE_ANY:
            self.checks.append(Check(name, INSECURE_ANY, seen, "pass", "policy", insecure=True))
        else:
            choices = list(accepted)
            self.add(name, " or ".join(choices), seen, seen in choices, "policy")

    def attempt(self, name: str, source: str, step: Callable[[], T]) -> T | None:
        """Make a step that raises on bad input; its failure is a finding like any other."""
        try:
            result = step()
        except (EvidenceError, MalformedClaims, MalformedNonce) as error:
            self.add(name, "well formed", str(error), False, source, "evidence")
            return None
        self.add(name, "well formed", "well formed", True, source, "evidence")
        return result


def _root(bundle: AttestationBundle, nonce: bytes) -> bytes:
    return merkle.root_of(nonce, bundle.nonce_path, bundle.nonce_index, bundle.nonce_count)


def _signed_report_data(bundle: AttestationBundle) -> bytes:
    if bundle.tee.type == simulated.TYPE:
        return simulated.signed_report_data(bundle.tee)
    raise EvidenceError(f"this release does not verify TEE evidence of type {bundle.tee.type!r}")


def _tee_type(findings: _Findings, bundle: AttestationBundle, policy: Policy) -> None:
    seen = bundle.tee.type or "none"
    if seen == simulated.TYPE and policy.insecure_allow_simulated:
        findings.checks.append(
            Check("tee.type", "insecure_allow_simulated: true", seen, "pass", "policy", insecure=True)
        )
    elif seen == simulated.TYPE:
        expected = f"{' or '.join(policy.tee)}; simulated evidence proves nothing"
        findings.add("tee.type", expected, seen, False, "policy")
    else:
        findings.one_of("tee.type", policy.tee, seen)


def _devices(findings: _Findings, bundle: AttestationBundle, parsed: Claims | None) -> None:
    # Evidence of accelerators is not verified by this release, so none is accepted.
    findings.equal("devices.evidence", "none", _listed(d.type for d in bundle.devices), "protocol 2", "evidence")
    if parsed is not None:
        findings.equal("claims.devices", "none", _listed(d.type for d in parsed.devices), "protocol 2", "evidence")


def _listed(types: Iterable[str]) -> str:
    return ", ".join(types) or "none"


def _keys(findings: _Findings, parsed: Claims, policy: Policy, now: float) -> list[PublicIdentity]:
    identities = []
    for position, key in enumerate(parsed.keys):
        name = f"claims.keys[{position}]"
        findings.one_of(f"{name}.suite", policy.suites, key.suite)
        try:
            identities.append(key.identity())
        except MalformedKey as error:
            findings.add(f"{name}.key_id", "the digest of suite and key", str(error), False, "protocol 1", "evidence")
        else:
            findings.add(f"{name}.key_id", "the digest of suite and key", key.key_id, True, "protocol 1", "evidence")
    distinct = len({key.public_key for key in parsed.keys}) == len(parsed.keys)
    findings.add("claims.keys", "different keys", "different" if distinct else "repeated", distinct, "protocol 1")
    current = parsed.keys[0]
    valid = current.not_before - CLOCK_TOLERANCE_SECONDS <= now <= current.not_after + CLOCK_TOLERANCE_SECONDS
    window = f"{_utc(current.not_before)} to {_utc(current.not_after)}"
    findings.add("claims.keys[0].validity", window, f"{_utc(now)} on this machine's clock", valid, "protocol 1")
    return identities


def _utc(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _policy(findings: _Findings, parsed: Claims, policy: Policy) -> None:
    findings.one_of("model.name", policy.model.name, parsed.model.name)
    findings.one_of("model.digest", policy.model.digest, parsed.model.digest)
    findings.one_of("engine.name", policy.engine.name, parsed.engine.name)
    findings.one_of("engine.version", policy.engine.version, parsed.engine.version)
    findings.one_of("engine.digest", policy.engine.digest, parsed.engine.digest)
    if isinstance(policy.engine.arguments, str):
        findings.one_of("engine.arguments", policy.engine.arguments, "not compared")
    else:
        for name, wanted in policy.engine.arguments.items():
            stated = name in parsed.engine.arguments
            seen = parsed.engine.arguments.get(name)
            # As JSON: in Python, True == 1.
            same = stated and canonical.encode([seen]) == canonical.encode([wanted])
            text = repr(seen) if stated else "not stated"
            findings.add(f"engine.arguments.{name}", repr(wanted), text, same, "policy")
    for tier in parsed.cache.tiers:
        findings.one_of(f"cache.tiers.{tier.medium}", policy.cache.tiers, tier.medium)
        if tier.medium != "gpu":
            protection = f"{tier.encryption or 'plaintext'}, key {tier.key or 'none'}"
            findings.equal(f"cache.tiers.{tier.medium}.encryption", "AES-256-GCM, key salt", protection, "protocol 6")
    demanded, offered = policy.stream.shape(), parsed.stream.shape()
    seen = f"{offered.padding}, tick {offered.tick_ms} ms"
    if demanded == StreamShape("none", 1, 0):
        findings.checks.append(Check("stream", "none, tick 0 ms", seen, "pass", "policy", insecure=True))
    else:
        wanted = f"at least {demanded.padding}, tick {demanded.tick_ms} ms"
        findings.add("stream", wanted, seen, offered.covers(demanded), "policy")
    findings.one_of("launcher.version", policy.launcher.version, parsed.launcher.version)
    findings.one_of("launcher.config", policy.launcher.config, parsed.launcher.config)
