"""Ports: a busy one is reported at once, a reserved one is free for front ends alone."""

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

import pytest

from strongroom.launcher.errors import LaunchRefused
from strongroom.launcher.reservation import Reservation, listening_socket
from strongroom.protocol.address import Address

ANY = Address("127.0.0.1", 0)


@contextlib.contextmanager
def bound(port: int, *, reuse_port: bool = False) -> Iterator[socket.socket]:
    """A listener like a front end's (with `reuse_port`) or anybody's."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(reuse_port))
        sock.bind(("127.0.0.1", port))
        sock.listen()
        yield sock


@pytest.fixture
def reservation() -> Iterator[Reservation]:
    with contextlib.closing(Reservation(ANY, "--listen")) as made:
        yield made


def test_port_0_becomes_the_port_that_the_system_chose(reservation: Reservation) -> None:
    assert reservation.address.host == "127.0.0.1"
    assert reservation.address.port > 0


@pytest.mark.parametrize("reuse_port", [False, True])
def test_a_busy_port_is_refused_with_the_flag_that_chooses_another(reuse_port: bool) -> None:
    with bound(0, reuse_port=reuse_port) as busy:
        address = Address("127.0.0.1", busy.getsockname()[1])
        with pytest.raises(LaunchRefused, match=rf"cannot listen on {address}: .*in use.*--report-listen"):
            Reservation(address, "--report-listen")
        with pytest.raises(LaunchRefused, match="--listen"):
            listening_socket(address, "--listen")


def test_front_ends_bind_beside_the_reservation_and_get_the_connections(reservation: Reservation) -> None:
    port = reservation.address.port
    with bound(port, reuse_port=True) as one, bound(port, reuse_port=True) as other:
        one.settimeout(0.05)
        other.settimeout(0.05)
        with socket.create_connection(("127.0.0.1", port)):
            accepted = 0
            for listener in (one, other):
                with contextlib.suppress(TimeoutError):
                    listener.accept()[0].close()
                    accepted += 1
    assert accepted == 1


def test_nobody_else_can_listen_on_a_reserved_port(reservation: Reservation) -> None:
    with pytest.raises(OSError, match=os.strerror(errno.EADDRINUSE)), bound(reservation.address.port):
        pass


def test_a_reservation_alone_accepts_nothing(reservation: Reservation) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", reservation.address.port))


def test_a_second_launcher_is_refused(reservation: Reservation) -> None:
    with pytest.raises(LaunchRefused):
        Reservation(reservation.address, "--listen")


def test_a_closed_reservation_gives_the_port_back(reservation: Reservation) -> None:
    reservation.close()
    with bound(reservation.address.port):
        pass


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b", "x" * 64])
def test_an_address_that_is_not_this_machines_is_refused(host: str) -> None:
    with pytest.raises(LaunchRefused, match="--listen"):
        listening_socket(Address(host, 0), "--listen")
