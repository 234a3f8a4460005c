"""What keeps a request from being sent or answered, and how commands report it."""

import enum


class ExitCode(enum.IntEnum):
    """Exit codes of the commands that talk to a worker; 2 is wrong usage, as everywhere."""

    FAILED = 1
    USAGE = 2
    EVIDENCE = 3
    POLICY = 6
    TRANSPORT = 7


class ClientError(Exception):
    """Root of what this package raises; the message is for a person and says what to do."""


class Unreachable(ClientError):
    """No answer from the worker, or one that breaks the transport."""


class RequestTooLarge(ClientError):
    """The request exceeds the protocol's limit; nothing was sent."""


class RequestFailed(ClientError):
    """The worker refused the request before it was answered; `code` is from the protocol's closed list."""

    def __init__(self, code: str, advice: str) -> None:
        super().__init__(f"the worker refused the request ({code}): {advice}")
        self.code = code


class ResponseBroken(ClientError):
    """The answer was cut off or changed on its way. What was received of it is not complete."""
