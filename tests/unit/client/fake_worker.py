"""A worker without an engine: it attests itself with simulated evidence and seals replies that a test chose."""

import asyncio
import collections
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
from bundles import attest, claims_document, identity, policy_document

from strongroom.attestation.policy import Policy
from strongroom.protocol import canonical
from strongroom.protocol.address import Address
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.request import AdmittedRequest, RequestOpener
from strongroom.protocol.v1.strongroom_pb2 import (
    AttestationBundle,
    AttestationRequest,
    End,
    Frame,
    Head,
    Header,
    InferenceRequest,
    ResponseRecord,
    SealedRecord,
)

Answer = Callable[[AdmittedRequest], AsyncIterator[bytes]]
Context = grpc.aio.ServicerContext[bytes, bytes]

POLICY = Policy.model_validate(policy_document())
REAL_POLICY = Policy.model_validate(policy_document(insecure_allow_simulated=False))
_SHAPE = StreamShape("bucket", 64, 0)


def sealed(admitted: AdmittedRequest, *pieces: bytes, status: int = 200, kind: str = "application/json") -> list[bytes]:
    """The payloads of a whole response: one for the head, one for each piece of the body, one for the end."""
    head = Head(status=status, headers=[Header(name="Content-Type", value=kind)])
    frames = [Frame(head=head), *(Frame(body=piece) for piece in pieces), Frame(end=End())]
    sealer = admitted.respond(bytes(range(32)))
    records = [ResponseRecord(frames=[frame]).SerializeToString() for frame in frames]
    last = len(records) - 1
    return [sealer.seal(r, size=_SHAPE.record_size(len(r)), last=i == last) for i, r in enumerate(records)]


def reply(*pieces: bytes, status: int = 200, kind: str = "application/json") -> Answer:
    """An answer with this response, whole."""
    return mangled(lambda payloads: payloads, *pieces, status=status, kind=kind)


def mangled(
    mangle: Callable[[list[bytes]], list[bytes]], *pieces: bytes, status: int = 200, kind: str = "application/json"
) -> Answer:
    """An answer whose payloads somebody changed on their way."""

    async def answer(admitted: AdmittedRequest) -> AsyncIterator[bytes]:
        for payload in mangle(sealed(admitted, *pieces, status=status, kind=kind)):
            yield payload

    return answer


def hanging(payloads: int, *pieces: bytes, kind: str = "application/json") -> Answer:
    """An answer that stops after some payloads and keeps the call open."""

    async def answer(admitted: AdmittedRequest) -> AsyncIterator[bytes]:
        for payload in sealed(admitted, *pieces, kind=kind)[:payloads]:
            yield payload
        await asyncio.Event().wait()

    return answer


def chunk(text: str) -> dict[str, Any]:
    """One chunk of a streamed chat completion, as OpenAI's SDK reads it."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "tiny", "choices": [choice]}


def sse(*texts: str) -> list[bytes]:
    """Server-sent events of a streamed chat completion."""
    return [b"data: " + json.dumps(chunk(text)).encode() + b"\n\n" for text in texts] + [b"data: [DONE]\n\n"]


class FakeWorker:
    """`answer`, `refusals`, `claims` and `keys` are a test's to set; `calls`, `received` and `requests` to read."""

    def __init__(self) -> None:
        self.keys: list[IdentityKey] = [identity("current"), identity("next")]
        self.retired: list[bytes] = []
        self.claims = claims_document(self.keys, int(time.time()) - 60)
        self.spoil: Callable[[bytes], bytes] = lambda bundle: bundle
        self.frame: Callable[[bytes], bytes] = lambda payload: SealedRecord(payload=payload).SerializeToString()
        self.answer: Answer = reply(b'{"ok":true}')
        self.refusals: collections.deque[WireCode] = collections.deque()
        # Ends calls with a status and trailers, before anything is opened.
        self.abort: tuple[grpc.StatusCode, tuple[tuple[str, str | bytes], ...]] | None = None
        self.calls: list[str] = []
        self.received: list[bytes] = []
        self.requests: list[InferenceRequest] = []
        self.opened = asyncio.Event()
        self.abandoned = asyncio.Event()
        self.address = Address("127.0.0.1", 0)
        self._seen: set[bytes] = set()
        self._server: grpc.aio.Server | None = None

    def rotate(self) -> None:
        """Destroy all keys and claim new ones."""
        self.retired += [key.public.key_id for key in self.keys]
        self.keys = [identity(f"{len(self.retired)} current"), identity(f"{len(self.retired)} next")]
        self.claims["keys"] = claims_document(self.keys, int(time.time()) - 60)["keys"]

    async def start(self) -> None:
        """Serve, on the same port as before if there was one."""
        # grpc closes the port late if others may share it.
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        methods = {
            "Attestation": {"GetAttestation": grpc.unary_unary_rpc_method_handler(self._get_attestation)},
            "Inference": {"Infer": grpc.unary_stream_rpc_method_handler(self._infer)},
        }
        for service, handlers in methods.items():
            handler = grpc.method_handlers_generic_handler(f"strongroom.v1.{service}", handlers)
            self._server.add_generic_rpc_handlers((handler,))
        self.address = Address("127.0.0.1", self._server.add_insecure_port(str(self.address)))
        await self._server.start()

    async def stop(self) -> None:
        """Go away at once; open calls are cut."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def bundle(self, nonce: bytes) -> AttestationBundle:
        return attest(canonical.encode(self.claims), [nonce], 0)

    async def _get_attestation(self, raw: bytes, context: Context) -> bytes:
        self.calls.append("attest")
        return self.spoil(self.bundle(AttestationRequest.FromString(raw).nonce).SerializeToString())

    async def _infer(self, raw: bytes, context: Context) -> AsyncIterator[bytes]:
        self.calls.append("infer")
        self.received.append(raw)
        if self.abort is not None:
            status, trailers = self.abort
            await context.abort(status, "canary: text of whoever sits on the wire", trailing_metadata=trailers)
        try:
            admitted = self._admit(raw)
        except RequestRefused as error:
            await context.abort(
                grpc.StatusCode[error.code.grpc_status],
                "canary: text of whoever sits on the wire",
                trailing_metadata=(("strongroom-error", error.code.code),),
            )
        self.requests.append(admitted.request)
        self.opened.set()
        whole = False
        try:
            async for payload in self.answer(admitted):
                yield self.frame(payload)
            whole = True
        finally:
            if not whole:
                self.abandoned.set()

    def _admit(self, raw: bytes) -> AdmittedRequest:
        if self.refusals:
            raise RequestRefused(self.refusals.popleft())
        pending = RequestOpener(self.keys, self.retired).open(raw)
        fresh = pending.replay_id not in self._seen
        self._seen.add(pending.replay_id)
        return pending.admit(fresh)
