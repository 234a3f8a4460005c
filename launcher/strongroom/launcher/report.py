"""The HTTP face of the launcher: attestation for verifiers, probes for orchestrators, metrics.

No request content ever passes here, so it is plain HTTP; the attestation protects itself.
"""

from collections.abc import Callable

from google.protobuf.json_format import MessageToDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from strongroom.attestation.errors import EvidenceError
from strongroom.launcher.metrics import Metrics
from strongroom.launcher.rounds import Rounds, TooManyWaiting
from strongroom.protocol import limits, merkle
from strongroom.protocol.errors import MalformedNonce


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message}}, status_code=status)


def report_app(rounds: Callable[[], Rounds | None], ready: Callable[[], bool], metrics: Metrics) -> Starlette:
    """The application; `rounds` gives None until there are claims to attest."""

    async def attestation(request: Request) -> Response:
        try:
            nonce = bytes.fromhex(request.query_params.get("nonce", ""))
            merkle.check_nonce(nonce)
        except (ValueError, MalformedNonce):
            low, high = limits.MIN_NONCE_BYTES, limits.MAX_NONCE_BYTES
            return _error(400, f"nonce must be {low} to {high} random bytes in hex: /v1/attestation?nonce=<hex>")
        current = rounds()
        if current is None:
            return _error(503, "the engine is still starting; try again later")
        try:
            bundle = await current.bundle(nonce)
        except TooManyWaiting:
            return _error(503, "too many verifiers are waiting; try again later")
        except EvidenceError:
            return _error(503, "evidence could not be collected; try again later")
        document = MessageToDict(bundle, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        return JSONResponse(document)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        return PlainTextResponse("ready\n") if ready() else PlainTextResponse("not ready\n", status_code=503)

    async def prometheus(_: Request) -> Response:
        return Response(metrics.render(), media_type="text/plain; version=0.0.4")

    return Starlette(
        routes=[
            Route("/v1/attestation", attestation),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", prometheus),
        ]
    )
