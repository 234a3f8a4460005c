"""Rounds of evidence: verifiers that wait at the same time share one, their nonces in one Merkle tree."""

import asyncio
from collections.abc import Callable

from strongroom.attestation.collection import Attester
from strongroom.protocol import binding, merkle
from strongroom.protocol.limits import MAX_NONCES_IN_A_ROUND
from strongroom.protocol.v1.strongroom_pb2 import AttestationBundle

MAX_WAITING = 8 * MAX_NONCES_IN_A_ROUND


class TooManyWaiting(Exception):
    """More verifiers wait than the next rounds can serve."""


class Rounds:
    """Answers nonces with bundles. At most one round of evidence is collected at a time, in a thread of its own."""

    def __init__(self, attester: Attester, claims: Callable[[], bytes]) -> None:
        self._attester = attester
        self._claims = claims
        self._waiting: list[tuple[bytes, asyncio.Future[AttestationBundle]]] = []
        self._running: asyncio.Task[None] | None = None

    async def bundle(self, nonce: bytes) -> AttestationBundle:
        """The bundle for `nonce`, from a round that starts after this call.

        Raises `MalformedNonce`, `TooManyWaiting`, or `EvidenceError` when the evidence cannot be collected.
        """
        merkle.check_nonce(nonce)
        if len(self._waiting) >= MAX_WAITING:
            raise TooManyWaiting
        answer: asyncio.Future[AttestationBundle] = asyncio.get_running_loop().create_future()
        self._waiting.append((nonce, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:MAX_NONCES_IN_A_ROUND]
                del self._waiting[:MAX_NONCES_IN_A_ROUND]
                await self._round(batch)
        finally:
            self._running = None

    async def _round(self, batch: list[tuple[bytes, asyncio.Future[AttestationBundle]]]) -> None:
        tree = merkle.NonceTree([nonce for nonce, _ in batch])
        try:
            claims = self._claims()
            evidence = await asyncio.to_thread(self._attester.collect, binding.report_data(tree.root, claims))
        except Exception as error:
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(error)
            return
        for index, (_, answer) in enumerate(batch):
            if not answer.done():
                answer.set_result(
                    AttestationBundle(
                        claims=claims,
                        tee=evidence,
                        nonce_path=tree.path(index),
                        nonce_index=index,
                        nonce_count=len(batch),
                    )
                )
