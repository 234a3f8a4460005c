"""`make demo`: the main job on a real model, as a user would do it. `--keep` leaves it running (`make serve`)."""

import argparse
import contextlib
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import openai
from rich.console import Console
from rich.table import Table

from tests import models
from tests.service import COMMAND, Failed, Service, policy_document, proxy, write_policy

NAME = "smollm2"
QUESTION = "What is the capital of France?"
ROUNDS = 3
AGAIN = "my salt again"
console = Console()

# Long enough that computing it takes a visible time: about 1,500 tokens.
LETTER = "You read letters of a clinic and answer questions about them.\n" + "\n".join(
    f"Letter {i}: the patient of room {i} slept well, ate at {6 + i % 4} o'clock and asked for a walk in the garden."
    for i in range(50)
)


def step(text: str) -> None:
    """Say what comes next."""
    console.print(f"\n[bold]{text}[/bold]")


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """The whole service: worker address, base URL of the proxy, policy file."""
    model = models.smollm2()
    policy = write_policy(folder / "policy.yaml", policy_document(model, NAME))
    step("1. The worker starts: evidence, keys, engine (a minute or less)")
    settings = {"engine": {"max_model_len": 4096, "cpu_kv_cache_gib": 1, "enforce_eager": True}}
    with Service(model, NAME, folder, **settings) as service:
        service.wait(lambda message: console.print(f"   {message}", style="dim", highlight=False, soft_wrap=True))
        with proxy(service.address, policy) as base_url:
            yield service.address, base_url, policy


def ask(client: openai.OpenAI, content: str, salt: str | None, *, show: bool = False) -> tuple[int, int, float]:
    """Stream one answer; gives prompt tokens, cached tokens, and seconds to the first token."""
    started = time.perf_counter()
    first = None
    usage = None
    stream = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": content}],
        max_tokens=40 if show else 8,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"cache_salt": salt} if salt else {},
    )
    for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.perf_counter()
            if show:
                console.print(chunk.choices[0].delta.content, end="", style="cyan", markup=False, highlight=False)
        usage = chunk.usage or usage
    assert usage is not None and first is not None, "the answer was empty"
    cached = usage.prompt_tokens_details.cached_tokens if usage.prompt_tokens_details else None
    return usage.prompt_tokens, cached or 0, first - started


def measure(client: openai.OpenAI) -> tuple[Table, bool]:
    """Same salt, other salt, no salt: what the cache gave, how long the first token took, and whether it is right."""
    ask(client, LETTER + "\nWarm up.", None)
    rows: dict[str, list[tuple[int, int, float]]] = {}
    for i in range(ROUNDS):
        mine, other = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        question = f"{LETTER}\nWho asked for a walk in round {i}?"
        for label, salt in (
            ("my salt, first time", mine),
            (AGAIN, mine),
            ("another salt", other),
            ("no salt (a fresh one is drawn)", None),
            ("no salt again", None),
        ):
            rows.setdefault(label, []).append(ask(client, question, salt))
    base = statistics.median(seconds for *_, seconds in rows["my salt, first time"])
    table = Table(
        title=f"The same {rows['no salt again'][0][0]}-token prompt, medians of {ROUNDS}", title_justify="left"
    )
    table.add_column("request")
    for column in ("cached tokens", "time to first token", "of the first"):
        table.add_column(column, justify="right")
    for label, measured in rows.items():
        seconds = statistics.median(s for *_, s in measured)
        cached = statistics.median(c for _, c, _ in measured)
        table.add_row(label, f"{cached:.0f}", f"{seconds * 1000:.0f} ms", f"{seconds / base:.2f} x")
    right = all((cached > 0) == (label == AGAIN) for label, measured in rows.items() for _, cached, _ in measured)
    return table, right


def main() -> int:
    """Run the demo; the exit code tells whether it worked."""
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--keep", action="store_true", help="keep the service running until Ctrl-C")
    keep = parser.parse_args().keep
    os.environ["HF_HUB_OFFLINE"] = "1"
    # SIGTERM cleans up like Ctrl-C.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="strongroom-demo-") as folder:
        try:
            with running(Path(folder)) as (address, base_url, policy):
                return hold(address, base_url, policy) if keep else show(address, base_url, policy)
        except (Failed, subprocess.CalledProcessError, openai.OpenAIError) as error:
            console.print(f"[bold red]The demo failed:[/bold red] {error}", highlight=False)
            return 1
        except KeyboardInterrupt:
            console.print("\nstopped")
            return 0 if keep else 130


def show(address: str, base_url: str, policy: Path) -> int:
    """Verify, chat, measure."""
    step("2. A client verifies the worker before it sends anything (strongroom verify)")
    sys.stdout.flush()
    subprocess.run([*COMMAND, "verify", "--server", address, "--policy", str(policy)], check=True)
    step(f"3. OpenAI's SDK asks through the local proxy, sealed to the attested key: {QUESTION}")
    client = openai.OpenAI(base_url=base_url, api_key="unused")
    console.print("   ", end="")
    ask(client, QUESTION, None, show=True)
    console.print()
    step("4. Prompt caching works within a salt and not across salts (measured now)")
    table, right = measure(client)
    console.print(table)
    if not right:
        raise Failed("cached tokens are not what the salts allow")
    step("5. Done; the worker, its engine and the proxy are stopped")
    return 0


def hold(address: str, base_url: str, policy: Path) -> int:
    """Print what to paste, and wait for Ctrl-C."""
    step("It runs. Paste one of these into another terminal; Ctrl-C here stops everything.")
    console.print(
        f"""
# curl
curl {base_url}/chat/completions -H 'Content-Type: application/json' -d '{{
  "model": "{NAME}", "temperature": 0, "max_tokens": 40,
  "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'

# Python, with OpenAI's SDK
{sys.executable} - <<'EOF'
import openai
client = openai.OpenAI(base_url="{base_url}", api_key="unused")
answer = client.chat.completions.create(
    model="{NAME}", temperature=0, max_tokens=40, messages=[{{"role": "user", "content": "{QUESTION}"}}])
print(answer.choices[0].message.content)
EOF

# the same without the proxy, and the appraisal alone
{COMMAND[0]} chat --server {address} --policy {policy} --max-tokens 40 --temperature 0 '{QUESTION}'
{COMMAND[0]} verify --server {address} --policy {policy}
""",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    while True:
        signal.pause()


if __name__ == "__main__":
    sys.exit(main())
