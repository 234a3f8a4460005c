"""`strongroom chat`: talk to a verified worker from the terminal."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from strongroom.client.channel import VerifiedChannel
    from strongroom.client.salts import Salter


def chat(
    message: Annotated[
        str | None, typer.Argument(help="What to say. Without it: standard input, or a conversation.")
    ] = None,
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="The worker's sealed gRPC address.")] = ...,  # type: ignore[assignment]
    policy: Annotated[Path, typer.Option(help="Policy file: what is acceptable.")] = ...,  # type: ignore[assignment]
    cache_salt_file: Annotated[Path | None, typer.Option(help="File (0600) with the salt of your cache scope.")] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, help="0 is deterministic.")] = None,
) -> None:
    """Verify a worker, then chat through the sealed channel; the answer is printed as it comes.

    A conversation at the terminal has a cache scope of its own, gone when it ends.
    Exit codes: 0 answered, 1 request failed, 2 wrong usage, 3 evidence refused, 6 policy not met, 7 unreachable.
    """
    import os

    from strongroom.attestation.policy import load_policy
    from strongroom.client.channel import VerifiedChannel
    from strongroom.client.commands.common import address_option, reported
    from strongroom.client.salts import Salter, read_salt_file
    from strongroom.protocol.cache import new_cache_salt

    address = address_option(server)
    options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature}
    options = {name: value for name, value in options.items() if value is not None}
    conversing = message is None and sys.stdin.isatty()

    async def run() -> None:
        salt = (
            read_salt_file(cache_salt_file) if cache_salt_file else new_cache_salt(os.urandom) if conversing else None
        )
        salter = Salter(salt)
        async with VerifiedChannel(address, load_policy(policy)) as channel:
            worker = await channel.attest()
            options["model"] = worker.claims.model.name
            if not conversing:
                await _turn(channel, salter, options, [{"role": "user", "content": message or sys.stdin.read()}])
                return
            typer.echo(f"verified: {worker.claims.model.name}. An empty line or Ctrl-D ends.", err=True)
            messages: list[dict[str, str]] = []
            while said := await asyncio.to_thread(_prompt):
                messages.append({"role": "user", "content": said})
                messages.append({"role": "assistant", "content": await _turn(channel, salter, options, messages)})

    with reported("chat"):
        try:
            asyncio.run(run())
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


def _prompt() -> str:
    try:
        return input("> ").strip()
    except EOFError:
        return ""


async def _turn(
    channel: "VerifiedChannel", salter: "Salter", options: dict[str, Any], messages: list[dict[str, str]]
) -> str:
    """Send the conversation, print the answer as it comes, and give it back."""
    from strongroom.client.errors import ClientError
    from strongroom.client.sse import events

    body, cache = salter.salted(json.dumps({**options, "messages": messages, "stream": True}).encode())
    response = await channel.request(
        "/v1/chat/completions", body, headers={"content-type": "application/json"}, cache=cache
    )
    if response.status != 200:
        raise ClientError(_error_message(await response.read()))
    said = []
    async for event in events(response.body):
        if "error" in event:
            raise ClientError(_error_message(json.dumps(event).encode()))
        for choice in event.get("choices", []):
            piece = choice["delta"].get("content") or ""
            said.append(piece)
            shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in piece)
            print(shown, end="", flush=True)  # noqa: T201 - the answer is the output
    print()  # noqa: T201
    return "".join(said)


def _error_message(raw: bytes) -> str:
    try:
        return f"the worker answered: {json.loads(raw)['error']['message']}"
    except (ValueError, KeyError, TypeError):
        return "the worker answered with an error that is not in OpenAI's form"
