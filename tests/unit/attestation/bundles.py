"""A worker that attests itself with simulated evidence, and the policy that wants exactly this worker.

Used by the tests of three folders; `Case` is the thing to mutate.
"""

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from strongroom.attestation.appraisal import Appraisal, VerifiedWorker, appraise
from strongroom.attestation.errors import AppraisalRefused
from strongroom.attestation.policy import Policy
from strongroom.attestation.simulated import SimulatedAttester
from strongroom.protocol import binding, canonical, claims, merkle
from strongroom.protocol.keys import SUITE_NAME, IdentityKey
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle

NOW = 1_800_000_000
LIFETIME = 3600
NONCE = bytes(range(32))
OTHER_NONCES = [bytes([n]) * 16 for n in range(1, 5)]


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def identity(name: str) -> IdentityKey:
    """An identity key, the same for the same name."""
    return IdentityKey(Secret(hashlib.shake_256(name.encode()).digest(IdentityKey.SECRET_BYTES)))


def key_claim(key: IdentityKey, not_before: int = NOW, lifetime: int = LIFETIME) -> dict[str, Any]:
    return {
        "key_id": key.public.key_id.hex(),
        "suite": SUITE_NAME,
        "public_key": canonical.base64url(key.public.public_key),
        "not_before": not_before,
        "not_after": not_before + lifetime,
    }


def claims_document(keys: Sequence[IdentityKey], now: int = NOW) -> dict[str, Any]:
    """Claims of a worker whose keys follow each other from `now` on."""
    return {
        "version": 1,
        "boot_id": "0" * 32,
        "keys": [key_claim(key, now + i * LIFETIME) for i, key in enumerate(keys)],
        "signing_key": {"algorithm": "Ed25519", "public_key": canonical.base64url(bytes(32))},
        "model": {"name": "tiny", "digest": digest("model"), "signature": None},
        "engine": {
            "name": "vllm",
            "version": "0.32.0",
            "arguments": {"enable_prefix_caching": True, "max_num_seqs": 1, "kv_connector": None, "layers": [1, 2]},
            "digest": digest("engine"),
        },
        "cache": {
            "salt": "required",
            "hash": "sha256",
            "tiers": [{"medium": "gpu", "bytes": 1024, "encryption": None, "key": None}],
        },
        "stream": {"padding": "bucket-256", "tick_ms": 20},
        "devices": [],
        "tee": {"type": "simulated"},
        "launcher": {"version": "0.1.0", "config": digest("config")},
        "info": {"note": "free"},
    }


def policy_document(insecure_allow_simulated: bool = True) -> dict[str, Any]:
    """The strictest policy that accepts `claims_document`, but for the TEE."""
    document = {
        "version": 1,
        "tee": ["sev-snp", "tdx"],
        "devices": "none",
        "suites": [SUITE_NAME],
        "model": {"name": ["other", "tiny"], "digest": [digest("other"), digest("model")]},
        "engine": {
            "name": ["vllm"],
            "version": ["0.32.0"],
            "arguments": {"enable_prefix_caching": True, "max_num_seqs": 1, "kv_connector": None, "layers": [1, 2]},
            "digest": [digest("engine")],
        },
        "cache": {"tiers": ["gpu"]},
        "stream": {"padding": "bucket-256", "tick_ms": 20},
        "launcher": {"version": ["0.1.0"], "config": [digest("config")]},
    }
    return document | ({"insecure_allow_simulated": True} if insecure_allow_simulated else {})


def attest(raw_claims: bytes, nonces: Sequence[bytes], index: int) -> AttestationBundle:
    """The bundle for the nonce at `index` of a round of `nonces`."""
    tree = merkle.NonceTree(nonces)
    return AttestationBundle(
        claims=raw_claims,
        tee=SimulatedAttester().collect(binding.report_data(tree.root, raw_claims)),
        nonce_path=tree.path(index),
        nonce_index=index,
        nonce_count=len(nonces),
    )


def put(document: Any, path: str, value: Any) -> None:
    """Set the member at a dotted path; numbers are positions."""
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in parents:
        document = document[part]
    document[last] = value


@dataclasses.dataclass
class Case:
    """One appraisal. As made, it passes; change a part and see which checks fail."""

    claims: dict[str, Any] = dataclasses.field(
        default_factory=lambda: claims_document([identity("current"), identity("next")])
    )
    policy: dict[str, Any] = dataclasses.field(default_factory=policy_document)
    nonce: bytes = NONCE
    now: float = NOW + 1
    spoil: Callable[[AttestationBundle], None] = lambda bundle: None

    def bundle(self) -> AttestationBundle:
        """Attested together with other verifiers' nonces, so that there is a path."""
        bundle = attest(canonical.encode(self.claims), [OTHER_NONCES[0], self.nonce, *OTHER_NONCES[1:]], 1)
        self.spoil(bundle)
        return bundle

    def appraise(self, nonce: bytes | None = None) -> VerifiedWorker:
        policy = Policy.model_validate(copy.deepcopy(self.policy))
        return appraise(self.bundle(), nonce or self.nonce, policy, now=self.now)

    def refusal(self, nonce: bytes | None = None) -> Appraisal:
        try:
            self.appraise(nonce)
        except AppraisalRefused as refused:
            return refused.appraisal
        raise AssertionError("the worker was accepted")

    def failed(self, nonce: bytes | None = None) -> set[str]:
        """Names of the checks that failed."""
        return {check.name for check in self.refusal(nonce).checks if check.verdict == "fail"}


def parsed_claims(document: dict[str, Any]) -> claims.Claims:
    return claims.parse(canonical.encode(document))
