"""What a verifier raises. Nothing here is a bool: an appraisal passes or an exception says why it did not."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strongroom.attestation.appraisal import Appraisal


class AttestationError(Exception):
    """Root of what this package raises for bad evidence and bad policies."""


class EvidenceError(AttestationError):
    """Evidence that cannot be read, or that could not be collected."""


class PolicyError(AttestationError):
    """A policy file that is unreadable, incomplete or contradicts itself. The message says what to write."""


class AppraisalRefused(AttestationError):
    """The evidence was appraised and refused; `appraisal` has every finding, not only the first."""

    def __init__(self, appraisal: "Appraisal") -> None:
        failed = [check for check in appraisal.checks if check.verdict == "fail"]
        super().__init__("; ".join(f"{check.name}: {check.seen} (expected {check.expected})" for check in failed))
        self.appraisal = appraisal
