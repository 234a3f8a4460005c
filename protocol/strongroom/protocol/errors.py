"""What can go wrong on the wire, and the closed list of codes that name it (docs/protocol.md, section 5)."""

import enum


class WireCode(enum.Enum):
    """The value of the `strongroom-error` trailer, with its gRPC status and what the caller should do.

    The texts are fixed: nothing about a request, a key or an exception is ever added to them.
    """

    UNKNOWN_KEY = ("unknown-key", "FAILED_PRECONDITION", "no such key here: attest again and seal afresh")
    REPLAY = ("replay", "ALREADY_EXISTS", "this request was seen before: seal afresh to send it again")
    MALFORMED = ("malformed", "INVALID_ARGUMENT", "this is not a sealed request that opens under the named key")
    OVERLOADED = ("overloaded", "RESOURCE_EXHAUSTED", "too many open requests: try again later")
    REPLAY_SET_FULL = ("replay-set-full", "RESOURCE_EXHAUSTED", "the replay set is full: try again later")
    TOO_LARGE = ("too-large", "RESOURCE_EXHAUSTED", "the sealed request exceeds the size limit")
    NOT_READY = ("not-ready", "UNAVAILABLE", "the worker is not ready: try again later")
    DRAINING = ("draining", "UNAVAILABLE", "the worker is shutting down: use another one")

    def __init__(self, code: str, grpc_status: str, advice: str) -> None:
        self.code = code
        self.grpc_status = grpc_status
        self.advice = advice


class ProtocolError(Exception):
    """A peer broke the protocol. Root of what this package raises for bad input off the wire."""


class RequestRefused(ProtocolError):
    """A request that a worker does not accept; `code` is all that the other side is told."""

    def __init__(self, code: WireCode) -> None:
        super().__init__(code.advice)
        self.code = code


class MalformedResponse(ProtocolError):
    """A response that does not open or breaks the order of its frames. Nothing in it may be trusted."""


class MalformedClaims(ProtocolError):
    """Claims that are not canonical JSON or not of the closed shape of section 2."""


class MalformedNonce(ProtocolError):
    """A nonce of the wrong length, or an inclusion path that does not fit its tree."""


class MalformedKey(ProtocolError):
    """A public or private key that is not one of its suite."""


class WeakSalt(ProtocolError):
    """A `cache_salt` that does not carry 256 bits. The message never contains the salt."""


class BadReceipt(ProtocolError):
    """A receipt whose signature does not verify, or that is not canonical JSON."""


class BadProfile(ProtocolError):
    """A stream profile that is not `none`, `bucket-N` or `constant-N` within the limits."""
