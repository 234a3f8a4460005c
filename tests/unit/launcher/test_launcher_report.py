"""The report endpoint: what a verifier gets over plain HTTP is the whole bundle, and errors are short and closed."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest
from bundles import NOW, claims_document, identity, policy_document
from google.protobuf import json_format

from strongroom.attestation.appraisal import appraise
from strongroom.attestation.errors import AppraisalRefused, EvidenceError
from strongroom.attestation.policy import Policy
from strongroom.attestation.simulated import SimulatedAttester
from strongroom.launcher import rounds as rounds_module
from strongroom.launcher.metrics import Metrics
from strongroom.launcher.report import report_app
from strongroom.launcher.rounds import Rounds
from strongroom.protocol import canonical
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle, Evidence

NONCE = bytes(range(32))


class FailingAttester:
    type = "simulated"

    def collect(self, report_data: bytes) -> Evidence:
        raise EvidenceError("canary: /dev/sev-guest is on fire")


class State:
    """What the launcher would tell the application."""

    def __init__(self) -> None:
        claims = canonical.encode(claims_document([identity("current"), identity("next")]))
        self.rounds: Rounds | None = Rounds(SimulatedAttester(), lambda: claims)
        self.ready = True
        self.metrics = Metrics()


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
async def http(state: State) -> AsyncIterator[httpx.AsyncClient]:
    app = report_app(lambda: state.rounds, lambda: state.ready, state.metrics)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://report") as client:
        yield client


async def test_the_json_bundle_is_the_message_and_passes_appraisal(http: httpx.AsyncClient) -> None:
    answer = await http.get("/v1/attestation", params={"nonce": NONCE.hex()})
    assert answer.status_code == 200
    document = answer.json()
    assert set(document) == {"claims", "tee", "devices", "nonce_path", "nonce_index", "nonce_count"}
    bundle = json_format.ParseDict(document, AttestationBundle())
    policy = Policy.model_validate(policy_document())
    assert appraise(bundle, NONCE, policy, now=NOW).appraisal.verdict == "pass"
    with pytest.raises(AppraisalRefused):
        appraise(bundle, bytes(32), policy, now=NOW)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "nonce=",
        "nonce=" + "00" * 15,
        "nonce=" + "00" * 65,
        "nonce=zz" * 16,
        "nonce=" + "0" * 33,
        "nonc=" + "0" * 64,
    ],
)
async def test_a_bad_nonce_is_400_and_says_what_is_wanted(http: httpx.AsyncClient, query: str) -> None:
    answer = await http.get(f"/v1/attestation?{query}")
    assert answer.status_code == 400
    assert "16 to 64" in answer.json()["error"]["message"]


async def test_a_nonce_of_each_length_in_the_limits_is_answered(http: httpx.AsyncClient) -> None:
    for size in (16, 64):
        assert (await http.get("/v1/attestation", params={"nonce": "ab" * size})).status_code == 200


async def test_before_there_are_claims_it_is_503(http: httpx.AsyncClient, state: State) -> None:
    state.rounds = None
    answer = await http.get("/v1/attestation", params={"nonce": NONCE.hex()})
    assert answer.status_code == 503
    assert "starting" in answer.json()["error"]["message"]


async def test_evidence_that_fails_is_503_without_its_reason(http: httpx.AsyncClient, state: State) -> None:
    state.rounds = Rounds(FailingAttester(), lambda: b"{}")
    answer = await http.get("/v1/attestation", params={"nonce": NONCE.hex()})
    assert answer.status_code == 503
    assert "canary" not in answer.text
    assert "later" in json.loads(answer.text)["error"]["message"]


async def test_too_many_verifiers_are_503(http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "MAX_WAITING", 0)
    answer = await http.get("/v1/attestation", params={"nonce": NONCE.hex()})
    assert answer.status_code == 503
    assert "too many" in answer.json()["error"]["message"]


async def test_the_probes_tell_alive_from_ready(http: httpx.AsyncClient, state: State) -> None:
    assert (await http.get("/readyz")).status_code == 200
    state.ready = False
    assert (await http.get("/readyz")).status_code == 503
    assert (await http.get("/healthz")).status_code == 200


async def test_metrics_have_no_series_that_a_request_could_name(http: httpx.AsyncClient, state: State) -> None:
    state.metrics.requests.labels("ok").inc()
    lines = (await http.get("/metrics")).text.splitlines()
    series = {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")}
    assert {name for name in series if not name.endswith("_created")} == {
        "strongroom_ready",
        "strongroom_open_requests",
        "strongroom_engine_requests",
        "strongroom_requests_total",
        "strongroom_front_end_restarts_total",
    }
    assert 'strongroom_requests_total{outcome="ok"} 1.0' in lines


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/", 404), ("POST", "/v1/attestation", 405)])
async def test_nothing_else_is_served(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    assert (await http.request(method, path)).status_code == status
