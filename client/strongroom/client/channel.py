"""A verified channel to one worker: attest first, then seal, then open what comes back.

    async with VerifiedChannel(Address("127.0.0.1", 8443), policy) as channel:
        response = await channel.request("/v1/chat/completions", body)
        async for piece in response.body: ...

Nothing is sealed before the worker's evidence has passed the policy.
"""

import asyncio
import contextlib
import dataclasses
import os
import time
from collections.abc import AsyncGenerator
from typing import Self

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from strongroom.attestation.appraisal import VerifiedWorker, appraise
from strongroom.attestation.policy import Policy
from strongroom.client.errors import ClientError, RequestFailed, RequestTooLarge, ResponseBroken, Unreachable
from strongroom.protocol.address import Address
from strongroom.protocol.errors import MalformedKey, MalformedResponse, WireCode
from strongroom.protocol.limits import MAX_BUNDLE_BYTES
from strongroom.protocol.request import ClientExchange, seal
from strongroom.protocol.v1.strongroom_pb2 import (
    AttestationBundle,
    AttestationRequest,
    CacheProfile,
    End,
    Head,
    Header,
    InferenceRequest,
    SealedRecord,
    StreamProfile,
)

NONCE_BYTES = 32
ATTESTATION_TIMEOUT_SECONDS = 30
# A request that a worker refused for its key or as a replay is sealed afresh once, and no more: what the refusal
# says is not authenticated.
_ATTEMPTS = 2
_RETRIED = {WireCode.UNKNOWN_KEY.code, WireCode.REPLAY.code}
_SHOWN_DETAILS = 300
_ADVICE = {code.code: code.advice for code in WireCode}


@dataclasses.dataclass(frozen=True)
class Response:
    """An HTTP response as the worker sealed it. `body` must be read to its end: only then is it known to be whole."""

    status: int
    headers: dict[str, str]
    body: AsyncGenerator[bytes, None]

    async def read(self) -> bytes:
        """The whole body; raises `ResponseBroken` if it was cut off."""
        return b"".join([piece async for piece in self.body])


class VerifiedChannel:
    """A connection to the worker at `address`, which every request finds verified under `policy`.

    Safe for many requests at a time, within one event loop.
    """

    def __init__(self, address: Address, policy: Policy, *, stream: StreamProfile | None = None) -> None:
        self._address = address
        self._policy = policy
        self._stream = stream
        self._channel = grpc.aio.insecure_channel(
            str(address),
            options=[
                # A retry by the transport would be a replay.
                ("grpc.enable_retries", 0),
                ("grpc.max_receive_message_length", MAX_BUNDLE_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.keepalive_time_ms", 30_000),
                # A worker that restarts is found again within a second.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 500),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        # Messages are parsed here: gRPC gives None for what does not parse.
        self._get_attestation: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = self._channel.unary_unary(
            "/strongroom.v1.Attestation/GetAttestation"
        )
        self._infer: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = self._channel.unary_stream(
            "/strongroom.v1.Inference/Infer"
        )
        self._verified: VerifiedWorker | None = None
        self._verifying = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; open requests are cancelled."""
        await self._channel.close()

    async def fetch(self, nonce: bytes) -> AttestationBundle:
        """The worker's bundle for `nonce`, not yet appraised; raises `Unreachable`."""
        try:
            request = AttestationRequest(nonce=nonce).SerializeToString()
            return AttestationBundle.FromString(
                await self._get_attestation(request, timeout=ATTESTATION_TIMEOUT_SECONDS)
            )
        except DecodeError as error:
            raise Unreachable(f"what answers at {self._address} is no Strongroom worker") from error
        except grpc.aio.AioRpcError as error:
            raise Unreachable(f"no attestation from {self._address}: {_transport_fault(error)}") from error

    async def attest(self) -> VerifiedWorker:
        """Verify the worker anew; raises `AppraisalRefused` or `Unreachable`. Requests use what it gives."""
        self._verified = None
        nonce = os.urandom(NONCE_BYTES)
        bundle = await self.fetch(nonce)
        self._verified = appraise(bundle, nonce, self._policy, now=time.time())
        return self._verified

    async def verified(self) -> VerifiedWorker:
        """The worker as verified, now or before; verified anew when its current key has run out."""
        async with self._verifying:
            if self._verified is None or self._verified.claims.keys[0].not_after <= time.time():
                return await self.attest()
            return self._verified

    async def request(
        self,
        path: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        cache: CacheProfile | None = None,
    ) -> Response:
        """Seal one request and give its response once the head has arrived.

        Raises `AppraisalRefused`, `Unreachable`, `RequestFailed`, or `ResponseBroken`; close `body` to cancel.
        """
        message = InferenceRequest(
            path=path,
            headers=[Header(name=name, value=value) for name, value in (headers or {}).items()],
            body=body,
            stream=self._stream,
            cache=cache,
        )
        for attempt in range(_ATTEMPTS):
            worker = await self.verified()
            try:
                return await self._exchange(_seal(worker, message))
            except RequestFailed as error:
                if error.code not in _RETRIED or attempt + 1 == _ATTEMPTS:
                    raise
                if self._verified is worker:
                    self._verified = None
        raise AssertionError("unreachable")

    async def _exchange(self, exchange: ClientExchange) -> Response:
        events = self._events(exchange)
        try:
            head = await anext(events)
            assert isinstance(head, Head)
        except BaseException:
            await events.aclose()
            raise
        return Response(
            head.status,
            {header.name.lower(): header.value for header in head.headers},
            _body(events),
        )

    async def _events(self, exchange: ClientExchange) -> AsyncGenerator[Head | bytes | End, None]:
        """Frames of the response as they are opened; the end of this generator means that it was whole."""
        opener = exchange.response()
        call = self._infer(exchange.sealed)
        answered = False
        try:
            async for record in call:
                for event in opener.receive(SealedRecord.FromString(record).payload):
                    yield event
                answered = True
            opener.finish()
        except grpc.aio.AioRpcError as error:
            # A status is not authenticated: after the last record it means nothing, after the first no refusal.
            if not opener.whole:
                raise _refusal(error, self._address, answered) from error
        except (MalformedResponse, DecodeError) as error:
            raise ResponseBroken(f"the answer cannot be trusted: {error}") from error
        finally:
            call.cancel()


async def _body(events: AsyncGenerator[Head | bytes | End, None]) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(events):
        async for event in events:
            if isinstance(event, bytes):
                yield event


def _seal(worker: VerifiedWorker, message: InferenceRequest) -> ClientExchange:
    try:
        return seal(worker.keys[:1], message, random=os.urandom)
    except MalformedKey as error:
        raise ClientError(f"the attested key cannot be sealed to: {error}") from error
    except ValueError as error:
        raise RequestTooLarge(f"{error}; shorten it") from error


def _refusal(error: grpc.aio.AioRpcError, address: Address, answered: bool) -> ClientError:
    """Name what ended a call. Nothing in it is authenticated, so it decides no more than what to tell the user."""
    if answered:
        return ResponseBroken(f"the answer was cut off: {_transport_fault(error)}")
    trailers = dict(error.trailing_metadata() or ())
    code = trailers.get("strongroom-error", "")
    if isinstance(code, str) and code in _ADVICE:
        return RequestFailed(code, _ADVICE[code])
    return Unreachable(f"no answer from {address}: {_transport_fault(error)}")


def _transport_fault(error: grpc.aio.AioRpcError) -> str:
    # The details come from whoever answered: they are shown, but may not steer a terminal.
    details = "".join(c if c.isprintable() else "?" for c in error.details() or "")[:_SHOWN_DETAILS]
    return f"{error.code().name.lower().replace('_', ' ')} ({details})"
