"""Ports are taken before the engine starts, so that a busy one is reported at once and not a minute later."""

import socket

from strongroom.launcher.errors import LaunchRefused
from strongroom.protocol.address import Address


def listening_socket(address: Address, flag: str) -> socket.socket:
    """A socket that listens on `address`; raises `LaunchRefused`, naming the `flag` that chooses another."""
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server((str(where[0]), address.port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise LaunchRefused(
            f"cannot listen on {address}: {reason}; free the port or choose another with {flag}"
        ) from error


class Reservation:
    """A bound socket that never listens: front ends of the same user bind the same port beside it (SO_REUSEPORT)."""

    def __init__(self, address: Address, flag: str) -> None:
        # Without SO_REUSEPORT this fails if anybody listens there, be it with SO_REUSEPORT.
        with listening_socket(address, flag) as probe:
            host, port = probe.getsockname()[:2]
            family = probe.family
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self._socket.bind((host, port))
        self.address = Address(address.host, port)

    def close(self) -> None:
        """Give the port back."""
        self._socket.close()
