"""What the running service proves, on both of its faces, and to a client that shares no code with it."""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import grpc.aio
import pytest
from google.protobuf.json_format import ParseDict
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from strongroom.attestation.appraisal import appraise
from strongroom.attestation.errors import AppraisalRefused
from strongroom.attestation.policy import Policy
from strongroom.client.channel import VerifiedChannel
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle
from tests.service import COMMAND, Service, manifest
from tests.system.conftest import KEY_LIFETIME_SECONDS, NAME
from tests.system.reference import REQUESTS

INDEPENDENT = Path(__file__).parent.parent / "conformance" / "independent_client.py"


def test_the_report_endpoint_serves_the_same_proof(service: Service, policy: Policy, model: Path) -> None:
    nonce = os.urandom(32)
    status, body = service.get(f"/v1/attestation?nonce={nonce.hex()}")
    assert status == 200
    bundle = ParseDict(json.loads(body), AttestationBundle())
    worker = appraise(bundle, nonce, policy, now=time.time())
    assert worker.claims.model.digest == manifest(model)["digest"]
    assert worker.claims.engine.arguments["max_model_len"] == 8192
    assert worker.claims.cache.tiers[0].bytes == 2**30
    assert [key.not_after - key.not_before for key in worker.claims.keys] == [KEY_LIFETIME_SECONDS] * 2


async def test_200_verifiers_at_once_each_get_a_proof_of_their_own(
    service: Service, policy: Policy, channel: VerifiedChannel
) -> None:
    nonces = [os.urandom(16 + i % 49) for i in range(200)]
    bundles = await asyncio.gather(*(channel.fetch(nonce) for nonce in nonces))
    for nonce, bundle in zip(nonces, bundles, strict=True):
        appraise(bundle, nonce, policy, now=time.time())
    # Control: a bundle answers its own nonce and no other.
    with pytest.raises(AppraisalRefused, match=r"tee\.report_data"):
        appraise(bundles[0], nonces[1], policy, now=time.time())


async def test_health_and_reflection_are_served(service: Service) -> None:
    async with grpc.aio.insecure_channel(service.address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", "strongroom.v1.Inference", "strongroom.v1.Attestation"):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        listed = [s.name async for answer in call for s in answer.list_services_response.service]
    assert {"strongroom.v1.Attestation", "strongroom.v1.Inference", "grpc.health.v1.Health"} <= set(listed)


def test_probes_answer(service: Service) -> None:
    assert service.get("/healthz") == (200, b"ok\n")
    assert service.get("/readyz") == (200, b"ready\n")
    assert service.metric("strongroom_ready") == 1
    assert service.get("/v1/chat/completions")[0] == 404


def independent(service: Service, *flags: str) -> subprocess.CompletedProcess[str]:
    body = ["--model", NAME, "--message", REQUESTS["greedy"]["messages"][0]["content"], "--max-tokens", "40"]
    command = [sys.executable, str(INDEPENDENT), "chat", service.address, *body, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_client_written_from_the_protocol_text_alone_talks_to_the_service(service: Service) -> None:
    whole = independent(service, "--insecure-allow-simulated")
    assert whole.returncode == 0, whole.stderr
    answer = json.loads(json.loads(whole.stdout)["body"])
    assert answer["usage"]["completion_tokens"] > 0
    streamed = independent(
        service, "--insecure-allow-simulated", "--stream", "--padding", "constant-512", "--tick-ms", "10"
    )
    assert streamed.returncode == 0, streamed.stderr
    assert json.loads(streamed.stdout)["body"].endswith("data: [DONE]\n\n")


def test_the_independent_client_too_refuses_simulated_evidence_by_default(service: Service) -> None:
    refused = independent(service)
    assert refused.returncode != 0
    assert "simulated" in refused.stderr + refused.stdout


def test_chat_prints_the_answer(service: Service, policy_path: Path, reference: dict[str, str]) -> None:
    flags = ["--server", service.address, "--policy", str(policy_path), "--max-tokens", "40", "--temperature", "0"]
    message = REQUESTS["greedy"]["messages"][0]["content"]
    result = subprocess.run([*COMMAND, "chat", *flags, message], capture_output=True, timeout=60)
    assert result.returncode == 0
    assert result.stdout.decode().strip() == reference["greedy"].strip()
