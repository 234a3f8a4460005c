"""Rounds of evidence: who waits together shares one, and everybody's path leads to the root that was signed."""

import asyncio
import threading

import pytest
from bundles import digest

from strongroom.attestation.errors import EvidenceError
from strongroom.attestation.simulated import SimulatedAttester, signed_report_data
from strongroom.launcher import rounds as rounds_module
from strongroom.launcher.rounds import Rounds, TooManyWaiting
from strongroom.protocol import binding, merkle
from strongroom.protocol.errors import MalformedNonce
from strongroom.protocol.limits import MAX_NONCES_IN_A_ROUND
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle, Evidence

CLAIMS = digest("claims").encode()


class SlowAttester:
    """Holds each round until it is let go."""

    type = "simulated"

    def __init__(self) -> None:
        self.collected = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.failure: Exception | None = None
        self._real = SimulatedAttester()

    def collect(self, report_data: bytes) -> Evidence:
        self.collected += 1
        self.started.release()
        assert self.go.acquire(timeout=10)
        if self.failure is not None:
            raise self.failure
        return self._real.collect(report_data)

    async def running(self) -> None:
        """Wait until a round has begun."""
        assert await asyncio.to_thread(self.started.acquire, timeout=10)


@pytest.fixture
def attester() -> SlowAttester:
    return SlowAttester()


@pytest.fixture
def rounds(attester: SlowAttester) -> Rounds:
    return Rounds(attester, lambda: CLAIMS)


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def ask(rounds: Rounds, *numbers: int) -> "list[asyncio.Task[AttestationBundle]]":
    return [asyncio.create_task(rounds.bundle(nonce(number))) for number in numbers]


def check(bundle: AttestationBundle, asked: bytes) -> None:
    root = merkle.root_of(asked, bundle.nonce_path, bundle.nonce_index, bundle.nonce_count)
    assert signed_report_data(bundle.tee) == binding.report_data(root, bundle.claims)


async def test_who_comes_during_a_round_shares_the_next_one(rounds: Rounds, attester: SlowAttester) -> None:
    (first,) = ask(rounds, 0)
    await attester.running()
    later = ask(rounds, 1, 2, 3, 4, 5)
    await asyncio.sleep(0)
    attester.go.release()
    check(await first, nonce(0))
    assert (await first).nonce_count == 1
    assert not any(task.done() for task in later)
    attester.go.release()
    bundles = await asyncio.gather(*later)
    for number, bundle in enumerate(bundles, 1):
        check(bundle, nonce(number))
    assert {bundle.nonce_count for bundle in bundles} == {5}
    assert [bundle.nonce_index for bundle in bundles] == [0, 1, 2, 3, 4]
    assert attester.collected == 2


async def test_a_bundle_is_no_answer_to_anothers_nonce(rounds: Rounds, attester: SlowAttester) -> None:
    (asked,) = ask(rounds, 1)
    attester.go.release()
    with pytest.raises(AssertionError):
        check(await asked, nonce(2))


async def test_equal_nonces_are_each_answered(rounds: Rounds, attester: SlowAttester) -> None:
    tasks = ask(rounds, 7, 7)
    attester.go.release()
    for bundle in await asyncio.gather(*tasks):
        check(bundle, nonce(7))


async def test_a_round_holds_1024_nonces_and_the_rest_wait_for_the_next(rounds: Rounds, attester: SlowAttester) -> None:
    tasks = ask(rounds, *range(MAX_NONCES_IN_A_ROUND + 3))
    attester.go.release(2)
    bundles = await asyncio.gather(*tasks)
    assert [b.nonce_count for b in bundles] == [MAX_NONCES_IN_A_ROUND] * MAX_NONCES_IN_A_ROUND + [3] * 3
    for number in (0, 1, 511, 1023, 1024, 1026):
        check(bundles[number], nonce(number))


async def test_claims_are_read_for_each_round(attester: SlowAttester) -> None:
    versions = iter([b"one", b"two"])
    rounds = Rounds(attester, lambda: next(versions))
    for claims in (b"one", b"two"):
        (asked,) = ask(rounds, 1)
        attester.go.release()
        assert (await asked).claims == claims
        check(await asked, nonce(1))


async def test_a_failure_reaches_all_waiters_and_the_next_round_works(rounds: Rounds, attester: SlowAttester) -> None:
    attester.failure = EvidenceError("no device")
    tasks = ask(rounds, 1, 2)
    attester.go.release()
    assert [type(e) for e in await asyncio.gather(*tasks, return_exceptions=True)] == [EvidenceError, EvidenceError]
    attester.failure = None
    (again,) = ask(rounds, 3)
    attester.go.release()
    check(await again, nonce(3))


async def test_a_failure_of_the_claims_reaches_all_waiters(attester: SlowAttester) -> None:
    def broken() -> bytes:
        raise RuntimeError("no claims")

    tasks = ask(Rounds(attester, broken), 1, 2)
    _, pending = await asyncio.wait(tasks, timeout=2)
    for task in pending:
        task.cancel()
    assert not pending, "verifiers wait for ever"
    assert all(isinstance(e, RuntimeError) for e in await asyncio.gather(*tasks, return_exceptions=True))


async def test_a_waiter_that_gives_up_does_not_harm_the_others(rounds: Rounds, attester: SlowAttester) -> None:
    running, gives_up, stays = ask(rounds, 1, 2, 3)
    await attester.running()
    (queued,) = ask(rounds, 4)
    await asyncio.sleep(0)
    gives_up.cancel()
    queued.cancel()
    attester.go.release(2)
    check(await running, nonce(1))
    check(await stays, nonce(3))
    assert gives_up.cancelled() or isinstance(await asyncio.gather(gives_up, return_exceptions=True), list)
    (again,) = ask(rounds, 5)
    attester.go.release()
    check(await again, nonce(5))


async def test_more_waiters_than_the_limit_are_turned_away(
    rounds: Rounds, attester: SlowAttester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds_module, "MAX_WAITING", 2)
    (running,) = ask(rounds, 0)
    await attester.running()
    waiting = ask(rounds, 1, 2)
    await asyncio.sleep(0)
    with pytest.raises(TooManyWaiting):
        await rounds.bundle(nonce(3))
    attester.go.release(2)
    await asyncio.gather(running, *waiting)
    (again,) = ask(rounds, 3)
    attester.go.release()
    check(await again, nonce(3))


@pytest.mark.parametrize("size", [0, 15, 65])
async def test_a_bad_nonce_starts_no_round(rounds: Rounds, attester: SlowAttester, size: int) -> None:
    with pytest.raises(MalformedNonce):
        await rounds.bundle(bytes(size))
    assert attester.collected == 0
