"""`strongroom proxy`: OpenAI's API on this machine, sealed to a verified worker."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer


def proxy(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The worker's sealed gRPC address.")],
    policy: Annotated[Path, typer.Option(help="Policy file: what is acceptable.")],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where applications connect; loopback only.")
    ] = "127.0.0.1:8080",
    cache_salt_file: Annotated[
        Path | None, typer.Option(help="File (0600) with a salt that all requests share.")
    ] = None,
) -> None:
    """Serve OpenAI's HTTP API on localhost; every request is sealed to a worker that the policy accepts.

    Each request gets a fresh cache salt, unless it brings its own or --cache-salt-file names one.
    Exit codes: 0 stopped on request, 1 cannot listen, 2 wrong usage or policy file, 3 evidence refused,
    6 policy not met, 7 unreachable.
    """
    import ipaddress
    import socket

    from strongroom.attestation.policy import load_policy
    from strongroom.client.channel import VerifiedChannel
    from strongroom.client.commands.common import address_option, reported
    from strongroom.client.errors import ClientError
    from strongroom.client.proxy import proxy_app, serve
    from strongroom.client.salts import Salter, read_salt_file
    from strongroom.protocol.address import Address

    worker_address = address_option(server)
    address = address_option(listen)
    host = "127.0.0.1" if address.host == "localhost" else address.host
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback:
        raise typer.BadParameter(
            f"{listen} is not a loopback address: prompts would cross the network in the clear; use 127.0.0.1:PORT"
        )

    def open_socket() -> socket.socket:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, address.port), family=family)
        except OSError as error:
            raise ClientError(
                f"cannot listen on {address}: {error.strerror}; choose another port with --listen"
            ) from error

    async def run() -> None:
        salter = Salter(read_salt_file(cache_salt_file) if cache_salt_file else None)
        with open_socket() as sock:
            async with VerifiedChannel(worker_address, load_policy(policy)) as channel:
                worker = await channel.attest()
                bound = Address(host, sock.getsockname()[1])
                scope = f"the salt in {cache_salt_file}" if cache_salt_file else "a fresh one for every request"
                typer.echo(
                    f"verified {worker_address}: model {worker.claims.model.name}\n"
                    f"OpenAI base URL  http://{bound}/v1  (any API key)\n"
                    f"cache salt       {scope}",
                    err=True,
                )
                await serve(proxy_app(channel, salter, host), sock)

    with reported("proxy"):
        asyncio.run(run())
