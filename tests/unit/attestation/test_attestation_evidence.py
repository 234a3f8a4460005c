"""Evidence: where it comes from, and that the simulated kind shouts and cannot be altered."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strongroom.attestation.collection import open_attester
from strongroom.attestation.errors import EvidenceError
from strongroom.attestation.simulated import SimulatedAttester, signed_report_data
from strongroom.protocol.v1.strongroom_pb2 import Evidence


def test_simulated_evidence_gives_back_the_data_that_it_signs() -> None:
    data = bytes(range(64))
    evidence = open_attester("simulated").collect(data)
    assert evidence.type == "simulated"
    assert signed_report_data(evidence) == data


def test_every_attester_has_a_key_of_its_own() -> None:
    one, other = (SimulatedAttester().collect(bytes(64)).report for _ in range(2))
    assert one[:32] != other[:32]


@settings(deadline=None, max_examples=60)
@given(position=st.integers(0, 159), bit=st.integers(0, 7))
def test_no_bit_of_a_simulated_report_can_be_flipped(position: int, bit: int) -> None:
    report = bytearray(SimulatedAttester().collect(bytes(64)).report)
    report[position] ^= 1 << bit
    with pytest.raises(EvidenceError):
        signed_report_data(Evidence(type="simulated", report=bytes(report)))


@settings(deadline=None, max_examples=60)
@given(report=st.binary(max_size=159) | st.binary(min_size=161, max_size=200))
def test_a_report_of_another_length_is_no_simulated_report(report: bytes) -> None:
    with pytest.raises(EvidenceError):
        signed_report_data(Evidence(type="simulated", report=report))


@pytest.mark.parametrize(
    "tee", [name for name in (*("sev-snp", "tdx", "azure-vtpm", "simulated"), "auto") if name != "simulated"]
)
def test_hardware_that_is_not_there_is_never_replaced_by_a_simulation(tee: str) -> None:
    with pytest.raises(EvidenceError, match="--tee simulated"):
        open_attester(tee)
