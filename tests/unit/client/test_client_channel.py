"""The verified channel: nothing is sent to a worker that was not verified, and nothing broken is taken for whole."""

import asyncio
import time
from collections.abc import Callable

import grpc
import pytest
from bundles import key_claim
from fake_worker import POLICY, REAL_POLICY, FakeWorker, hanging, mangled, reply

from strongroom.attestation.appraisal import AppraisalRefused
from strongroom.attestation.errors import AttestationError
from strongroom.client.channel import VerifiedChannel
from strongroom.client.errors import ClientError, RequestFailed, ResponseBroken, Unreachable
from strongroom.protocol.canonical import base64url
from strongroom.protocol.errors import WireCode
from strongroom.protocol.keys import key_id
from strongroom.protocol.v1.strongroom_pb2 import CacheProfile, SealedRequest, StreamProfile

PATH = "/v1/chat/completions"
CANARY = b"canary-prompt-5d1f"


def key_ids(raw: bytes) -> list[bytes]:
    return [envelope.key_id for envelope in SealedRequest.FromString(raw).envelopes]


# Verification comes first ---------------------------------------------------------------------------------------


async def test_a_request_is_answered(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.answer = reply(b"one ", b"two", status=418, kind="text/plain")
    response = await channel.request(
        PATH, CANARY, headers={"Content-Type": "application/json"}, cache=CacheProfile(reuse=True)
    )
    assert (response.status, response.headers) == (418, {"content-type": "text/plain"})
    assert await response.read() == b"one two"
    (request,) = worker.requests
    assert (request.path, request.body, request.cache.reuse) == (PATH, CANARY, True)
    assert [(h.name, h.value) for h in request.headers] == [("Content-Type", "application/json")]


async def test_nothing_is_sent_before_the_appraisal_has_passed(worker: FakeWorker, channel: VerifiedChannel) -> None:
    await (await channel.request(PATH)).read()
    assert worker.calls == ["attest", "infer"]
    assert key_ids(worker.received[0]) == [worker.keys[0].public.key_id]


@pytest.mark.parametrize("tries", [1, 3])
async def test_nothing_at_all_is_sent_to_a_worker_that_the_policy_refuses(worker: FakeWorker, tries: int) -> None:
    async with VerifiedChannel(worker.address, REAL_POLICY) as channel:
        for _ in range(tries):
            with pytest.raises(AppraisalRefused, match=r"tee\.type"):
                await channel.request(PATH, CANARY)
    assert worker.calls == ["attest"] * tries
    assert worker.received == []


async def test_an_old_bundle_is_no_answer_to_a_new_nonce(worker: FakeWorker, channel: VerifiedChannel) -> None:
    recorded = worker.bundle(bytes(32)).SerializeToString()
    worker.spoil = lambda _: recorded
    with pytest.raises(AppraisalRefused, match=r"tee\.report_data"):
        await channel.request(PATH, CANARY)
    assert worker.received == []


async def test_nonces_are_never_used_twice(worker: FakeWorker, channel: VerifiedChannel) -> None:
    bundles: list[bytes] = []
    worker.spoil = lambda raw: bundles.append(raw) or raw  # type: ignore[func-returns-value]
    for _ in range(3):
        await channel.attest()
    assert len(set(bundles)) == 3


async def test_a_worker_is_attested_once_for_many_requests(worker: FakeWorker, channel: VerifiedChannel) -> None:
    async def ask() -> bytes:
        return await (await channel.request(PATH)).read()

    assert await asyncio.gather(*(ask() for _ in range(8))) == [b'{"ok":true}'] * 8
    assert worker.calls.count("attest") == 1
    assert len(set(worker.received)) == 8


async def test_a_worker_whose_current_key_has_run_out_is_attested_again(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    now = int(time.time())
    worker.claims["keys"] = [key_claim(worker.keys[0], now - 100, 90), key_claim(worker.keys[1], now - 10)]
    for _ in range(2):
        await (await channel.request(PATH)).read()
    assert worker.calls == ["attest", "infer"] * 2


async def test_nothing_of_a_request_shows_on_the_wire(worker: FakeWorker, channel: VerifiedChannel) -> None:
    await (await channel.request(f"/{CANARY.decode()}", CANARY, headers={"x": CANARY.decode()})).read()
    assert CANARY in worker.requests[0].body
    assert CANARY not in worker.received[0]


async def test_the_shape_that_the_client_wants_travels_inside(worker: FakeWorker) -> None:
    wanted = StreamProfile(padding="constant-256", tick_ms=40)
    async with VerifiedChannel(worker.address, POLICY, stream=wanted) as channel:
        await (await channel.request(PATH)).read()
    assert worker.requests[0].stream == wanted


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\xff"])
async def test_a_bundle_that_does_not_parse_is_an_error_of_ours(
    worker: FakeWorker, channel: VerifiedChannel, raw: bytes
) -> None:
    worker.spoil = lambda _: raw
    with pytest.raises((ClientError, AttestationError)):
        await channel.request(PATH, CANARY)
    assert worker.received == []


async def test_an_empty_bundle_is_refused(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.spoil = lambda _: b""
    with pytest.raises(AppraisalRefused):
        await channel.request(PATH, CANARY)
    assert worker.received == []


async def test_an_attested_key_that_the_library_refuses_is_an_error_of_ours(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    """Length and key_id are right, the coefficients of the matrix are out of range."""
    bad = b"\xff" * 1216
    worker.claims["keys"][0] |= {"key_id": key_id(bad).hex(), "public_key": base64url(bad)}
    with pytest.raises((ClientError, AttestationError)):
        await channel.request(PATH, CANARY)
    assert worker.received == []


# Refusals before the request is opened ----------------------------------------------------------------------------


async def test_after_unknown_key_the_worker_is_attested_again_and_the_request_sealed_afresh(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    await (await channel.request(PATH)).read()
    worker.rotate()
    assert await (await channel.request(PATH, CANARY)).read() == b'{"ok":true}'
    assert worker.calls == ["attest", "infer", "infer", "attest", "infer"]
    assert key_ids(worker.received[2]) == [worker.keys[0].public.key_id] != key_ids(worker.received[1])
    assert [request.body for request in worker.requests] == [b"", CANARY]


async def test_a_worker_that_changed_is_not_sent_the_request_again(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    await (await channel.request(PATH)).read()
    worker.rotate()
    worker.claims["engine"]["version"] = "0.0.1"
    with pytest.raises(AppraisalRefused, match=r"engine\.version"):
        await channel.request(PATH, CANARY)
    assert worker.calls == ["attest", "infer", "infer", "attest"]
    assert len(worker.requests) == 1


@pytest.mark.parametrize("code", [WireCode.UNKNOWN_KEY, WireCode.REPLAY])
async def test_a_request_is_sealed_afresh_once_and_no_more(
    worker: FakeWorker, channel: VerifiedChannel, code: WireCode
) -> None:
    worker.refusals.extend([code])
    assert await (await channel.request(PATH)).read() == b'{"ok":true}'
    worker.received.clear()
    worker.refusals.extend([code] * 9)
    with pytest.raises(RequestFailed) as error:
        await channel.request(PATH)
    assert error.value.code == code.code
    assert len(worker.received) == 2


async def test_after_replay_new_bytes_are_sent(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.refusals.append(WireCode.REPLAY)
    await (await channel.request(PATH, CANARY)).read()
    first, second = (SealedRequest.FromString(raw) for raw in worker.received)
    assert first.ciphertext != second.ciphertext
    assert first.envelopes[0].sealed != second.envelopes[0].sealed


@pytest.mark.parametrize("code", [c for c in WireCode if c not in (WireCode.UNKNOWN_KEY, WireCode.REPLAY)])
async def test_other_refusals_are_final(worker: FakeWorker, channel: VerifiedChannel, code: WireCode) -> None:
    worker.refusals.append(code)
    with pytest.raises(RequestFailed) as error:
        await channel.request(PATH)
    assert error.value.code == code.code
    assert code.advice in str(error.value)
    assert "canary" not in str(error.value)
    assert worker.calls == ["attest", "infer"]


@pytest.mark.parametrize("status", [grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL])
@pytest.mark.parametrize("trailers", [(), (("strongroom-error", "made-up"),), (("strongroom-error-bin", b"\xff"),)])
async def test_a_status_outside_the_closed_list_is_a_fault_of_the_transport(
    worker: FakeWorker, channel: VerifiedChannel, status: grpc.StatusCode, trailers: tuple[tuple[str, str], ...]
) -> None:
    worker.abort = (status, trailers)
    with pytest.raises(Unreachable):
        await channel.request(PATH)
    assert worker.calls == ["attest", "infer"]


# Broken responses -------------------------------------------------------------------------------------------------


def _flip(payload: bytes, position: int = -1) -> bytes:
    changed = bytearray(payload)
    changed[position] ^= 1
    return bytes(changed)


PIECES = (b"first", b"second", b"third")
BROKEN: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "nothing": lambda p: [],
    "only the head": lambda p: p[:1],
    "cut after a piece": lambda p: p[:2],
    "cut before the end": lambda p: p[:-1],
    "the first record changed": lambda p: [_flip(p[0]), *p[1:]],
    "the response nonce changed": lambda p: [_flip(p[0], 20), *p[1:]],
    "a later record changed": lambda p: [*p[:2], _flip(p[2], 0), *p[3:]],
    "the last record changed": lambda p: [*p[:-1], _flip(p[-1])],
    "a record dropped": lambda p: [*p[:2], *p[3:]],
    "the first record dropped": lambda p: p[1:],
    "a record sent twice": lambda p: [*p[:2], *p[1:]],
    "two records exchanged": lambda p: [p[0], p[2], p[1], *p[3:]],
    "a record after the end": lambda p: [*p, p[-1]],
    "junk after the end": lambda p: [*p, b"junk"],
    "an empty payload": lambda p: [p[0], b"", *p[1:]],
    "a key that the request was not sealed to": lambda p: [bytes(16) + p[0][16:], *p[1:]],
    "junk alone": lambda p: [b"junk"],
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_response_that_was_tampered_with_is_broken(
    worker: FakeWorker, channel: VerifiedChannel, how: str
) -> None:
    worker.answer = reply(*PIECES)
    assert await (await channel.request(PATH)).read() == b"".join(PIECES)
    worker.answer = mangled(BROKEN[how], *PIECES)
    with pytest.raises(ResponseBroken, match="cannot be trusted"):
        await (await channel.request(PATH)).read()
    assert len(worker.requests) == 2


async def test_what_came_before_the_cut_is_given_and_then_the_error(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    worker.answer = mangled(lambda p: p[:3], *PIECES)
    response = await channel.request(PATH)
    assert [await anext(response.body) for _ in range(2)] == [b"first", b"second"]
    with pytest.raises(ResponseBroken):
        await anext(response.body)


async def test_the_answer_to_another_request_is_broken(worker: FakeWorker, channel: VerifiedChannel) -> None:
    recorded: list[bytes] = []
    worker.answer = mangled(lambda p: recorded.extend(p) or p, *PIECES)  # type: ignore[func-returns-value]
    await (await channel.request(PATH)).read()
    worker.answer = mangled(lambda p: recorded, *PIECES)
    with pytest.raises(ResponseBroken):
        await channel.request(PATH)


@pytest.mark.parametrize("position", [0, 2])
async def test_a_record_that_does_not_parse_is_broken(
    worker: FakeWorker, channel: VerifiedChannel, position: int
) -> None:
    worker.answer = mangled(lambda p: [*p[:position], b"", *p[position:]], *PIECES)
    frame = worker.frame
    worker.frame = lambda payload: frame(payload) if payload else b"\x0a\xff"
    with pytest.raises((ResponseBroken, Unreachable)):
        await (await channel.request(PATH)).read()


async def test_a_record_above_the_limit_is_broken(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.answer = mangled(lambda p: [p[0], bytes(2 * 1024 * 1024)], *PIECES)
    with pytest.raises((ResponseBroken, Unreachable)):
        await (await channel.request(PATH)).read()


async def test_a_worker_that_dies_in_the_middle_leaves_an_error(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.answer = hanging(2, *PIECES)
    response = await channel.request(PATH)
    assert await anext(response.body) == b"first"
    await worker.stop()
    with pytest.raises((ResponseBroken, Unreachable)):
        await response.read()


# The connection ---------------------------------------------------------------------------------------------------


async def test_a_worker_that_is_down_is_unreachable_and_found_again_within_3_seconds(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    await (await channel.request(PATH)).read()
    await worker.stop()
    with pytest.raises(Unreachable, match=str(worker.address)):
        await channel.request(PATH)
    # Down for long enough that the client has begun to wait between its tries.
    await asyncio.sleep(1.5)
    await worker.start()
    async with asyncio.timeout(3):
        while True:
            try:
                assert await (await channel.request(PATH)).read() == b'{"ok":true}'
                break
            except Unreachable:
                await asyncio.sleep(0.05)


async def test_a_worker_that_was_never_there_is_unreachable(worker: FakeWorker, channel: VerifiedChannel) -> None:
    await worker.stop()
    with pytest.raises(Unreachable, match="no attestation"):
        await channel.request(PATH)


async def test_closing_the_body_cancels_the_call_at_the_worker(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.answer = hanging(2, *PIECES)
    response = await channel.request(PATH)
    assert await anext(response.body) == b"first"
    assert not worker.abandoned.is_set()
    await response.body.aclose()
    await asyncio.wait_for(worker.abandoned.wait(), 3)


async def test_closing_a_body_that_was_never_read_cancels_the_call(
    worker: FakeWorker, channel: VerifiedChannel
) -> None:
    worker.answer = hanging(1, *PIECES)
    response = await channel.request(PATH)
    await response.body.aclose()
    await asyncio.wait_for(worker.abandoned.wait(), 3)


@pytest.mark.parametrize("payloads", [0, 1])
async def test_cancelling_the_task_cancels_the_call(
    worker: FakeWorker, channel: VerifiedChannel, payloads: int
) -> None:
    """Before the head has come, and after."""
    worker.answer = hanging(payloads, *PIECES)

    async def ask() -> bytes:
        return await (await channel.request(PATH)).read()

    task = asyncio.create_task(ask())
    await asyncio.wait_for(worker.opened.wait(), 5)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(worker.abandoned.wait(), 3)


async def test_one_slow_request_does_not_hold_up_others(worker: FakeWorker, channel: VerifiedChannel) -> None:
    worker.answer = hanging(1, *PIECES)
    slow = await channel.request(PATH)
    worker.answer = reply(b"quick")
    assert await (await channel.request(PATH)).read() == b"quick"
    await slow.body.aclose()
