"""An OpenAI-compatible HTTP server on the loopback address, in front of a verified channel.

What arrives in the clear on this machine leaves it only sealed. There is no fallback: while the worker is not
verified, requests fail.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from strongroom.attestation.errors import AppraisalRefused
from strongroom.client import channel as sealed
from strongroom.client.channel import VerifiedChannel
from strongroom.client.errors import ClientError, RequestFailed, RequestTooLarge, ResponseBroken, Unreachable
from strongroom.client.salts import BodyRefused, Salter
from strongroom.protocol.limits import MAX_SEALED_REQUEST_BYTES
from strongroom.protocol.v1.strongroom_pb2 import CacheProfile

# Refusing other names keeps web pages out that point a name of their own at this machine (DNS rebinding).
LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"]
_CLIENT_GONE = 499
# Before the request was opened: code of the protocol -> HTTP status.
_STATUS = {"too-large": 413, "overloaded": 429, "replay-set-full": 429, "malformed": 502}


def _error(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "param": None, "code": status}}, status)


def proxy_app(channel: VerifiedChannel, salter: Salter, host: str = "127.0.0.1") -> Starlette:
    """The application, listening on `host`; it serves the paths that are sealed, and nothing else."""

    async def post(request: Request) -> Response:
        if _from_a_web_page(request):
            return _error(403, "web pages are not served by this proxy", "invalid_request_error")
        # A web page can send other types to this port without asking the browser's leave; JSON it cannot.
        if request.headers.get("content-type", "").split(";")[0].strip().lower() != "application/json":
            return _error(415, "send the body as Content-Type: application/json", "invalid_request_error")
        try:
            raw = await _read(request)
            body, cache = salter.salted(raw)
        except BodyRefused as error:
            return _error(400, str(error), "invalid_request_error")
        except _TooLargeError:
            return _error(413, f"the body exceeds {MAX_SEALED_REQUEST_BYTES} bytes", "invalid_request_error")
        return await _forward(channel, request, body, cache)

    async def get(request: Request) -> Response:
        if _from_a_web_page(request):
            return _error(403, "web pages are not served by this proxy", "invalid_request_error")
        return await _forward(channel, request, b"", None)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def not_found(request: Request, _: Exception) -> Response:
        return _error(404, f"{request.method} {request.url.path} is not served by this proxy", "not_found_error")

    return Starlette(
        routes=[
            Route("/v1/chat/completions", post, methods=["POST"]),
            Route("/v1/models", get, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK_NAMES, host], www_redirect=False)],
        exception_handlers={404: not_found, 405: not_found},
    )


def _from_a_web_page(request: Request) -> bool:
    """Whether a browser says that a page of another origin sent this."""
    return "origin" in request.headers or request.headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}


class _TooLargeError(Exception):
    pass


async def _read(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_SEALED_REQUEST_BYTES:
            raise _TooLargeError
    return bytes(body)


async def _forward(channel: VerifiedChannel, request: Request, body: bytes, cache: CacheProfile | None) -> Response:
    async def exchange() -> Response:
        headers = {"content-type": "application/json"} if body else {}
        response = await channel.request(request.url.path, body, headers=headers, cache=cache)
        kind = response.headers.get("content-type", "application/json")
        if kind.startswith("text/event-stream"):
            return StreamingResponse(_relay(response), response.status, media_type=kind)
        return Response(await response.read(), response.status, media_type=kind)

    try:
        return await _unless_gone(request, exchange)
    except AppraisalRefused as error:
        return _error(503, f"the worker was refused, nothing was sent: {error}", "worker_refused")
    except Unreachable as error:
        return _error(503, str(error), "worker_unreachable")
    except RequestFailed as error:
        return _error(_STATUS.get(error.code, 503), str(error), error.code)
    except ResponseBroken as error:
        return _error(502, str(error), "response_broken")
    except RequestTooLarge as error:
        return _error(413, str(error), "invalid_request_error")
    except ClientError as error:
        return _error(503, str(error), "worker_refused")


async def _relay(response: sealed.Response) -> AsyncIterator[bytes]:
    """Pass a stream on; when it breaks, say so in it and break the connection, so that nobody takes it for whole."""
    async with contextlib.aclosing(response.body):
        try:
            async for piece in response.body:
                yield piece
        except ResponseBroken as error:
            fault = {"error": {"message": str(error), "type": "response_broken", "param": None, "code": 502}}
            yield b"data: " + json.dumps(fault).encode() + b"\n\n"
            raise


async def _unless_gone(request: Request, work: Callable[[], Awaitable[Response]]) -> Response:
    """Do `work`, but cancel it if the HTTP client goes away first."""
    working = asyncio.ensure_future(work())
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else Response(status_code=_CLIENT_GONE)
    finally:
        for task in (working, gone):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Server(uvicorn.Server):
    """uvicorn that ends on SIGTERM and SIGINT without dying of the signal."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        def stop() -> None:
            self.should_exit = True

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        yield


async def serve(app: Starlette, sock: socket.socket) -> None:
    """Serve on a listening socket until SIGTERM or SIGINT; open streams get five seconds to finish."""
    # uvicorn would log the text of exceptions, and with it parts of requests.
    logging.getLogger("uvicorn.error").disabled = True
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    await _Server(config).serve(sockets=[sock])
