"""Bad input from every side: each gets its closed code or a clear error, and the service goes on."""

import asyncio
import json
import os
import subprocess
import time
from pathlib import Path

import grpc
import grpc.aio
import httpx
import openai
import pytest

from strongroom.client.channel import VerifiedChannel
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.request import seal
from strongroom.protocol.v1.strongroom_pb2 import Envelope, InferenceRequest, SealedRecord, SealedRequest
from tests.service import COMMAND, Service, policy_document, write_policy
from tests.system.conftest import NAME

BODY = json.dumps({"model": NAME, "messages": [{"role": "user", "content": "CANARY-7731"}], "max_tokens": 1}).encode()
REQUEST = InferenceRequest(path="/v1/chat/completions", body=BODY)


async def infer(address: str, raw: bytes) -> tuple[str, str, str]:
    """Send bytes as they are; gives gRPC status, `strongroom-error` and the message."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_stream("/strongroom.v1.Inference/Infer", response_deserializer=SealedRecord.FromString)(
            raw
        )
        try:
            async for _ in call:
                pass
        except grpc.aio.AioRpcError as error:
            return error.code().name, dict(error.trailing_metadata()).get("strongroom-error", ""), error.details()
    return "OK", "", ""


async def sealed(channel: VerifiedChannel) -> bytes:
    return seal((await channel.verified()).keys[:1], REQUEST, random=os.urandom).sealed


async def test_a_replay_is_refused_and_the_original_was_not(service: Service, channel: VerifiedChannel) -> None:
    raw = await sealed(channel)
    assert await infer(service.address, raw) == ("OK", "", "")
    for _ in range(3):
        status, code, _ = await infer(service.address, raw)
        assert (status, code) == ("ALREADY_EXISTS", "replay")


async def test_a_replay_sent_64_times_at_once_is_executed_once(service: Service, channel: VerifiedChannel) -> None:
    raw = await sealed(channel)
    answers = await asyncio.gather(*(infer(service.address, raw) for _ in range(64)))
    assert sorted(code for _, code, _ in answers) == [""] + ["replay"] * 63


@pytest.mark.parametrize("cut", [0, 1, 17, 500, 1180, 1500])
async def test_a_truncated_request_is_malformed(service: Service, channel: VerifiedChannel, cut: int) -> None:
    raw = await sealed(channel)
    status, code, text = await infer(service.address, raw[:cut])
    assert (status, code) == ("INVALID_ARGUMENT", "malformed")
    assert "CANARY" not in text


@pytest.mark.parametrize("position", [-1, -40, 30, 700])
async def test_a_changed_request_is_malformed(service: Service, channel: VerifiedChannel, position: int) -> None:
    raw = bytearray(await sealed(channel))
    raw[position] ^= 1
    status, code, _ = await infer(service.address, bytes(raw))
    assert (status, code) == ("INVALID_ARGUMENT", "malformed")


@pytest.mark.parametrize(
    "raw", [b"", b"\xff" * 100, os.urandom(4096), b'{"model": "x"}'], ids=["empty", "ff", "random", "json"]
)
async def test_bytes_that_are_no_request_are_malformed(service: Service, raw: bytes) -> None:
    status, code, text = await infer(service.address, raw)
    assert (status, code) == ("INVALID_ARGUMENT", "malformed")
    assert text == "this is not a sealed request that opens under the named key"


async def test_a_request_to_a_foreign_key_is_told_to_attest_again(service: Service) -> None:
    foreign = IdentityKey.generate(os.urandom).public
    status, code, text = await infer(service.address, seal([foreign], REQUEST, random=os.urandom).sealed)
    assert (status, code) == ("FAILED_PRECONDITION", "unknown-key")
    assert "attest again" in text


async def test_two_envelopes_to_one_worker_are_malformed(service: Service, channel: VerifiedChannel) -> None:
    both = seal((await channel.verified()).keys, REQUEST, random=os.urandom).sealed
    status, code, _ = await infer(service.address, both)
    assert (status, code) == ("INVALID_ARGUMENT", "malformed")


async def test_a_second_envelope_to_a_foreign_worker_does_no_harm(service: Service, channel: VerifiedChannel) -> None:
    foreign = IdentityKey.generate(os.urandom).public
    keys = [foreign, (await channel.verified()).keys[0]]
    assert await infer(service.address, seal(keys, REQUEST, random=os.urandom).sealed) == ("OK", "", "")


async def test_a_request_above_the_limit_is_too_large(service: Service, channel: VerifiedChannel) -> None:
    key = (await channel.verified()).keys[0]
    raw = SealedRequest(
        envelopes=[Envelope(key_id=key.key_id, sealed=b"x")], ciphertext=bytes(32 * 1024 * 1024)
    ).SerializeToString()
    status, code, _ = await infer(service.address, raw)
    assert (status, code) == ("RESOURCE_EXHAUSTED", "too-large")


async def test_messages_made_to_exhaust_it_leave_the_service_ready(service: Service, client: openai.OpenAI) -> None:
    before = service.metric("strongroom_front_end_restarts_total")
    envelopes = b"\x0a\x00" * (8 * 1024 * 1024)
    answers = await asyncio.gather(*(infer(service.address, envelopes) for _ in range(4)))
    assert {code for _, code, _ in answers} == {"malformed"}
    assert service.get("/readyz")[0] == 200
    assert client.models.list().data
    assert service.metric("strongroom_front_end_restarts_total") == before


async def test_the_widest_request_that_is_accepted_leaves_others_their_turn(
    service: Service, async_client: openai.AsyncOpenAI
) -> None:
    wide = await async_client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": "wide"}],
        n=16,
        max_tokens=60,
        logprobs=True,
        top_logprobs=20,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    await anext(wide)
    done = 0
    for _ in range(3):
        answer = await async_client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": "narrow"}], max_tokens=2
        )
        done += answer.usage.completion_tokens > 0
        assert service.get("/readyz")[0] == 200
    assert done == 3
    finished = {choice.index async for chunk in wide for choice in chunk.choices if choice.finish_reason}
    assert finished == set(range(16)), "the wide one ends whole too"


BAD_BODIES = {
    "not JSON": b"{",
    "not UTF-8": b'{"model": "\xff"}',
    "a list": b"[]",
    "twice": b'{"model": "tiny", "model": "tiny", "messages": []}',
    "NaN": b'{"model": "tiny", "messages": [], "temperature": NaN}',
    "deep": b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "unknown field": b'{"model": "tiny", "messages": [], "kv_transfer_params": {}}',
    "template": b'{"model": "tiny", "messages": [], "chat_template": "{{ 1 }}"}',
    "no messages": b'{"model": "tiny"}',
    "wrong type": b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": "many"}',
    "negative": b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": -1}',
    "too many": b'{"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 100000000}',
    "too long": json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "x" * 9000}]}).encode(),
    "image": json.dumps(
        {"model": "tiny", "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
    ).encode(),
}


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_a_bad_body_gets_an_openai_error_while_another_stream_goes_on(
    channel: VerifiedChannel, async_client: openai.AsyncOpenAI, name: str
) -> None:
    stream = await async_client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": "in flight"}],
        max_tokens=30,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True},
    )
    response = await channel.request("/v1/chat/completions", BAD_BODIES[name])
    error = json.loads(await response.read())["error"]
    assert response.status == 400
    assert set(error) == {"message", "type", "param", "code"}
    assert error["code"] == 400
    assert error["message"]
    assert "Traceback" not in error["message"]
    *_, last = [chunk async for chunk in stream]
    assert last.usage.completion_tokens == 30


@pytest.mark.parametrize("path", ["/v1/embeddings", "/metrics", "/v1/chat/completions/", "../v1/models", ""])
async def test_a_path_outside_the_table_is_refused_by_name(channel: VerifiedChannel, path: str) -> None:
    response = await channel.request(path, b"{}")
    assert response.status == 404
    assert "is not served" in json.loads(await response.read())["error"]["message"]


def test_an_unknown_model_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])


@pytest.mark.parametrize("nonce", ["", "zz", "00", "00" * 65, "00" * 15])
def test_the_report_endpoint_refuses_bad_nonces(service: Service, nonce: str) -> None:
    status, body = service.get(f"/v1/attestation?nonce={nonce}")
    assert status == 400
    assert "16 to 64" in json.loads(body)["error"]["message"]


def verify(service: Service, policy: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "verify", "--server", service.address, "--policy", str(policy), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_simulated_evidence_is_refused_by_a_real_policy(service: Service, model: Path, folder: Path) -> None:
    real = policy_document(model, NAME, tee=["sev-snp", "tdx"])
    del real["insecure_allow_simulated"]
    path = write_policy(folder / "real.yaml", real)
    result = verify(service, path)
    assert result.returncode == 6
    assert "REFUSED: tee.type" in result.stderr
    assert "simulated evidence" in result.stderr
    assert "Traceback" not in result.stderr
    proxy = [*COMMAND, "proxy", "--server", service.address, "--policy", str(path), "--listen", "127.0.0.1:0"]
    refused = subprocess.run(proxy, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 6
    assert "Nothing was sent to it" in refused.stderr
    # Control: the same policy with the one insecure line accepts.
    accepted = verify(service, write_policy(folder / "real.yaml", real | {"insecure_allow_simulated": True}))
    assert accepted.returncode == 0


def test_a_policy_for_another_model_refuses_and_shows_every_finding(
    service: Service, model: Path, folder: Path
) -> None:
    wrong = policy_document(
        model,
        NAME,
        model={"name": ["other"], "digest": ["sha256:" + "0" * 64]},
        stream={"padding": "constant-512", "tick_ms": 50},
    )
    result = verify(service, write_policy(folder / "wrong.yaml", wrong), "--json")
    assert result.returncode == 6
    findings = json.loads(result.stdout)
    failed = {check["name"] for check in findings["checks"] if check["verdict"] == "fail"}
    assert findings["verdict"] == "fail"
    assert failed == {"model.name", "model.digest", "stream"}


def test_no_canary_is_in_the_log_or_the_metrics(service: Service, client: openai.OpenAI) -> None:
    canary = "CANARY-" + os.urandom(8).hex()
    client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": canary}], max_tokens=1)
    for body in ({"cache_salt": canary}, {canary: 1}, {"response_format": canary}, {"logit_bias": {canary: 1}}):
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(
                model=NAME, messages=[{"role": "user", "content": canary}], max_tokens=1, extra_body=body
            )
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model=canary, messages=[{"role": "user", "content": "x"}])
    time.sleep(1.5)  # a pulse
    seen = "\n".join(service.lines) + service.get("/metrics")[1].decode()
    assert '"engine-output"' in seen, "control: the log is read, and shows what the engine says"
    assert seen.index('"engine-output"') < seen.index('"ready"')
    assert canary not in seen
    assert "CANARY-7731" not in seen


def test_the_proxy_refuses_what_a_web_page_could_send(base_url: str) -> None:
    url = f"{base_url}/chat/completions"
    simple = httpx.post(url, content=BODY, headers={"content-type": "text/plain"})
    rebound = httpx.post(url, content=BODY, headers={"content-type": "application/json", "host": "example.com"})
    control = httpx.post(url, content=BODY, headers={"content-type": "application/json"})
    assert (simple.status_code, rebound.status_code, control.status_code) == (415, 400, 200)
