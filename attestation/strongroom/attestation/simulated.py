"""A simulated TEE, for machines without the hardware. It proves nothing: every verifier refuses it by default.

The report binds the same report data as a real one, so that the whole protocol runs unchanged:

    report = public_key (32) || report_data (64) || signature (64)

with an Ed25519 signature, by a key thrown away at exit, over "strongroom/1 simulated" || report_data.
"""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from strongroom.attestation.errors import EvidenceError
from strongroom.protocol.v1.strongroom_pb2 import Evidence

TYPE = "simulated"
_LABEL = b"strongroom/1 simulated"
_REPORT_BYTES = 32 + 64 + 64


class SimulatedAttester:
    """Signs report data with a key of its own, which nobody endorses."""

    type = TYPE

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()

    def collect(self, report_data: bytes) -> Evidence:
        """Evidence over 64 bytes of report data."""
        public_key = self._key.public_key().public_bytes_raw()
        signature = self._key.sign(_LABEL + report_data)
        return Evidence(type=TYPE, report=public_key + report_data + signature)


def signed_report_data(evidence: Evidence) -> bytes:
    """The report data that simulated evidence signs; raises `EvidenceError` if it is not whole."""
    report = evidence.report
    if len(report) != _REPORT_BYTES:
        raise EvidenceError(f"a simulated report has {_REPORT_BYTES} bytes, not {len(report)}")
    public_key, report_data, signature = report[:32], report[32:96], report[96:]
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, _LABEL + report_data)
    except (InvalidSignature, ValueError) as error:
        raise EvidenceError("the signature of the simulated report does not verify") from error
    return report_data
