"""Where a worker's own evidence comes from."""

from typing import Protocol

from strongroom.attestation.errors import EvidenceError
from strongroom.attestation.simulated import SimulatedAttester
from strongroom.protocol.v1.strongroom_pb2 import Evidence


class Attester(Protocol):
    """Something that signs report data: RFC 9334's attesting environment."""

    type: str

    def collect(self, report_data: bytes) -> Evidence:
        """Evidence over 64 bytes of report data; may block. Raises `EvidenceError`."""


def open_attester(tee: str) -> Attester:
    """The attester for `--tee`; raises `EvidenceError`, saying what to do, where there is none."""
    if tee == "simulated":
        return SimulatedAttester()
    if tee == "auto":
        raise EvidenceError(
            "no TEE was found: this release collects no evidence from hardware yet. "
            "For development on this machine use --tee simulated, which verifiers refuse by default"
        )
    raise EvidenceError(
        f"this release collects no {tee} evidence yet. "
        "For development use --tee simulated, which verifiers refuse by default"
    )
