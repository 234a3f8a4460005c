"""What the launcher says while it runs: a closed list of events, on standard error.

A person's terminal gets a line of text, anything else gets JSON. Logs are treated as public: fields are numbers,
addresses, names and digests that the claims state anyway, never what a client sent.
"""

import enum
import json
import sys
import time


class Event(enum.Enum):
    """Everything that can be said; the value is the text for a person."""

    SIMULATED = (
        "WARNING: --tee simulated. This worker proves NOTHING about what runs here: its evidence is signed by a "
        "throw-away key, and every verifier refuses it unless its policy says insecure_allow_simulated: true. "
        "Never send it a prompt that matters."
    )
    STARTING = "strongroom {version} starts: model {model}, TEE {tee}"
    ENGINE_STARTING = "the engine starts (attempt {attempt}); this takes a minute or more"
    ENGINE_PROGRESS = "the engine is starting, {seconds} s so far"
    ENGINE_OUTPUT = "engine: {line}"
    MODEL_DIGEST = "model digest {digest}"
    READY = "ready: sealed gRPC on {listen}, report on {report_listen}"
    KEYS_CHANGED = "identity keys changed, current {key_id}"
    KEYS_REPLACED = "the engine's configuration changed: every identity key was destroyed and replaced"
    FRONT_END_DIED = "a front end ended unexpectedly, exit code {code}"
    OUTPUT_WITHHELD = "{lines} lines of engine output were withheld, since it was given keys"
    STOPPING = "stopping: open requests have {seconds} s to finish"
    STOPPED = "stopped"


def emit(event: Event, **fields: str | int) -> None:
    """Say `event`."""
    if sys.stderr.isatty():
        line = f"{time.strftime('%H:%M:%S')} {event.value.format(**fields)}"
        if event is Event.SIMULATED:
            line = f"\x1b[1;37;41m{line}\x1b[0m"
    else:
        name = event.name.lower().replace("_", "-")
        record = {"time": round(time.time(), 3), "event": name, "message": event.value.format(**fields), **fields}
        line = json.dumps(record, ensure_ascii=True)
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - this is the log
