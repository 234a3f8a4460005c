"""The shaper: the client gets the same bytes, an observer gets the sizes and times of the shape alone (section 4)."""

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strongroom.protocol.limits import MAX_RECORD_PLAINTEXT_BYTES
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.response import RecordKeys, ResponseOpener, ResponseSealer
from strongroom.protocol.secret import Secret
from strongroom.protocol.shaper import ResponseShaper
from strongroom.protocol.v1.strongroom_pb2 import End, Head, Header

KEY_ID = b"k" * 16
PREAMBLE, TAG = 48, 16
KEYS = RecordKeys(Secret(b"s" * 32), b"t" * 32)
START = 1000.0
HEAD = Head(status=200)
TICK = 0.02


@dataclasses.dataclass(frozen=True)
class Script:
    """What an engine does: a head, pieces of a body, an end, each so many seconds after the one before."""

    head_after: float
    pieces: tuple[tuple[float, bytes], ...]
    end_after: float
    head: Head = dataclasses.field(default_factory=lambda: HEAD)
    end: End = dataclasses.field(default_factory=End)

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)


@dataclasses.dataclass(frozen=True)
class Sent:
    """One payload, as an observer of the network sees it."""

    at: float
    length: int


def run(padding: str, script: Script, tick_ms: int = 20, late: float = 0.0) -> tuple[list[Sent], list[bytes]]:
    """Play `script`: the server sleeps until the next input or record, and wakes `late` seconds late for a record."""
    shape = StreamShape.parse(padding, tick_ms)
    shaper = ResponseShaper(ResponseSealer(KEYS, KEY_ID, b"n" * 32), shape, START)
    inputs: list[tuple[float, Any]] = []
    now = START + script.head_after
    inputs.append((now, lambda: shaper.head(script.head)))
    for delay, piece in script.pieces:
        now += delay
        inputs.append((now, lambda piece=piece: shaper.body(piece)))
    inputs.append((now + script.end_after, lambda: shaper.end(script.end)))
    seen: list[Sent] = []
    payloads: list[bytes] = []
    clock = START
    while not shaper.done:
        due = shaper.due()
        assert inputs or due is not None, "the shaper never ends"
        assert len(payloads) < 5000, "the shaper never ends"
        next_input = inputs[0][0] if inputs else float("inf")
        if due is None or next_input <= due:
            clock = max(clock, next_input)
            inputs.pop(0)[1]()
        else:
            clock = max(clock, due + late)
        while (payload := shaper.take(clock)) is not None:
            seen.append(Sent(clock, len(payload)))
            payloads.append(payload)
    assert not inputs, "the end left before all was queued"
    assert shaper.due() is None
    assert shaper.take(clock + 100) is None
    return seen, payloads


def received(payloads: list[bytes]) -> tuple[Head, bytes, End]:
    opener = ResponseOpener(KEYS, {KEY_ID})
    head, *body, end = [event for payload in payloads for event in opener.receive(payload)]
    opener.finish()
    assert isinstance(head, Head)
    assert isinstance(end, End)
    return head, b"".join(body), end


def plaintext_sizes(sent: list[Sent]) -> list[int]:
    return [s.length - TAG - (0 if i else PREAMBLE) for i, s in enumerate(sent)]


DELAYS = st.sampled_from([0.0, 0.001, 0.0199, 0.02, 0.021, 0.05, 0.3])
SCRIPTS = st.builds(
    Script,
    head_after=DELAYS,
    pieces=st.lists(st.tuples(DELAYS, st.binary(max_size=300)), max_size=8).map(tuple),
    end_after=DELAYS,
    end=st.builds(End, receipt=st.binary(max_size=40)),
)
PADDINGS = st.sampled_from(["none", "bucket-64", "bucket-256", "bucket-1000", "constant-64", "constant-512"])


@given(padding=PADDINGS, script=SCRIPTS, late=st.sampled_from([0.0, 0.007, 0.09]))
@settings(max_examples=200)
def test_the_client_gets_exactly_what_the_engine_gave(padding: str, script: Script, late: float) -> None:
    _, payloads = run(padding, script, late=late)
    assert received(payloads) == (script.head, script.body, script.end)


@pytest.mark.parametrize("padding", ["none", "bucket-4096", "constant-65536"])
def test_a_body_of_several_records_arrives_whole(padding: str) -> None:
    body = bytes(range(256)) * 10_000
    head = Head(status=200, headers=[Header(name="content-type", value="application/json")])
    end = End(receipt=b"r" * 300, signature=b"s" * 64)
    sent, payloads = run(padding, Script(0.0, ((0.0, body),), 0.0, head, end))
    assert received(payloads) == (head, body, end)
    assert all(size <= MAX_RECORD_PLAINTEXT_BYTES for size in plaintext_sizes(sent))


@given(script=SCRIPTS)
def test_without_padding_everything_leaves_at_once(script: Script) -> None:
    delays = [script.head_after, *(delay for delay, _ in script.pieces), script.end_after]
    filled = [True, *(bool(piece) for _, piece in script.pieces), True]
    sent, _ = run("none", script)
    times = itertools.accumulate(delays, initial=START)
    assert [s.at for s in sent] == list(itertools.compress(itertools.islice(times, 1, None), filled))
    assert sum(plaintext_sizes(sent)) <= len(script.body + script.end.receipt) + 20 * len(sent)


@given(size=st.sampled_from([64, 100, 256, 4096]), script=SCRIPTS)
def test_bucket_records_are_multiples_of_n(size: int, script: Script) -> None:
    sent, _ = run(f"bucket-{size}", script)
    assert all(plaintext > 0 and plaintext % size == 0 for plaintext in plaintext_sizes(sent))


@given(script=SCRIPTS, late=st.sampled_from([0.0, 0.007, 0.09]))
def test_bucket_records_are_a_tick_apart_and_the_first_leaves_at_once(script: Script, late: float) -> None:
    sent, _ = run("bucket-256", script, late=late)
    assert sent[0].at == START + script.head_after
    assert all(b.at - a.at >= TICK - 1e-9 for a, b in itertools.pairwise(sent))


def test_what_arrives_within_a_tick_leaves_as_one_bucket_record() -> None:
    pieces = tuple((0.001, b"x" * 10) for _ in range(10))
    sent, payloads = run("bucket-256", Script(0.0, pieces, 0.5))
    assert [s.at - START for s in sent] == pytest.approx([0.0, 0.02, 0.51])
    assert plaintext_sizes(sent) == [256, 256, 256]
    assert received(payloads)[1] == b"x" * 100


def test_full_bucket_records_leave_one_behind_the_other() -> None:
    body = bytes(2 * MAX_RECORD_PLAINTEXT_BYTES + 5000)
    sent, payloads = run("bucket-4096", Script(0.0, ((0.1, body), (0.001, b"next")), 0.0))
    sizes = plaintext_sizes(sent)
    assert sizes == [4096, MAX_RECORD_PLAINTEXT_BYTES, MAX_RECORD_PLAINTEXT_BYTES, 8192, 4096]
    assert [s.at - START for s in sent] == pytest.approx([0.0, 0.1, 0.1, 0.1, 0.12])
    assert received(payloads)[1] == body + b"next"


def test_two_bucket_responses_of_the_same_rhythm_and_buckets_look_alike() -> None:
    one = Script(0.0, ((0.03, b"yes"), (0.03, b"")), 0.03)
    other = Script(0.0, ((0.03, b"a much longer piece of text than the other one has"), (0.03, b"")), 0.03)
    assert run("bucket-256", one)[0] == run("bucket-256", other)[0]
    assert run("none", one)[0] != run("none", other)[0]


@given(size=st.sampled_from([64, 512, 4096]), tick_ms=st.sampled_from([1, 20, 50]), script=SCRIPTS)
def test_constant_mode_sends_one_record_of_n_bytes_each_tick(size: int, tick_ms: int, script: Script) -> None:
    sent, _ = run(f"constant-{size}", script, tick_ms=tick_ms)
    assert plaintext_sizes(sent) == [size] * len(sent)
    ticks = [START + (i + 1) * tick_ms / 1000 for i in range(len(sent))]
    assert [s.at for s in sent] == pytest.approx(ticks, abs=1e-6)


@given(one=SCRIPTS, other=SCRIPTS)
def test_constant_mode_shows_nothing_of_a_script_but_its_duration(one: Script, other: Script) -> None:
    first, second = run("constant-512", one)[0], run("constant-512", other)[0]
    common = min(len(first), len(second))
    assert first[:common] == second[:common]


@given(
    one=st.lists(st.binary(max_size=60), min_size=5, max_size=5),
    other=st.lists(st.binary(max_size=60), min_size=5, max_size=5),
    rhythm=st.permutations([0.0, 0.003, 0.011, 0.04, 0.1]),
)
def test_two_scripts_of_one_duration_are_the_same_to_an_observer_of_constant_mode(
    one: list[bytes], other: list[bytes], rhythm: list[float]
) -> None:
    even = [sum(rhythm) / 5] * 5
    first = Script(0.0, tuple(zip(rhythm, one, strict=True)), 0.505 - sum(rhythm))
    second = Script(0.05, tuple(zip(even, other, strict=True)), 0.455 - sum(even))
    observed = run("constant-512", first)
    assert observed[0] == run("constant-512", second)[0]
    assert len(observed[0]) == 26
    # The control: without padding the same two scripts differ.
    assert run("none", first)[0] != run("none", second)[0]


def test_constant_mode_sends_empty_records_while_the_engine_is_silent() -> None:
    sent, payloads = run("constant-64", Script(0.105, ((0.1, b"x"),), 0.1))
    assert len(sent) == 16
    assert received(payloads) == (HEAD, b"x", End())


@given(script=SCRIPTS, late=st.sampled_from([0.001, 0.019, 0.07]))
def test_a_late_wake_up_drops_no_tick_of_constant_mode(script: Script, late: float) -> None:
    punctual, delayed = run("constant-512", script)[0], run("constant-512", script, late=late)[0]
    assert len(delayed) >= len(punctual) - 1 - int(late / TICK)
    ticks_until_end = (delayed[-1].at - START) / TICK
    assert len(delayed) == pytest.approx(ticks_until_end, abs=late / TICK + 1.001)


@pytest.mark.parametrize("padding", ["none", "bucket-256"])
def test_nothing_is_due_while_nothing_waits(padding: str) -> None:
    shaper = ResponseShaper(ResponseSealer(KEYS, KEY_ID, b"n" * 32), StreamShape.parse(padding, 20), START)
    assert shaper.due() is None
    assert shaper.take(START + 10) is None
    shaper.body(b"")
    assert shaper.due() is None
    shaper.head(HEAD)
    assert shaper.take(START + 10) is not None
    assert shaper.due() is None


def test_nothing_leaves_before_it_is_due() -> None:
    shaper = ResponseShaper(ResponseSealer(KEYS, KEY_ID, b"n" * 32), StreamShape.parse("constant-64", 20), START)
    shaper.head(HEAD)
    assert shaper.due() == START + TICK
    assert shaper.take(START + TICK - 0.001) is None
    assert shaper.take(START + TICK) is not None
    assert shaper.take(START + TICK) is None


def test_a_head_that_does_not_fit_into_a_record_is_refused() -> None:
    head = Head(status=200, headers=[Header(name="x", value="y" * 60)])
    for padding, fits in (("constant-64", False), ("constant-128", True), ("bucket-64", True), ("none", True)):
        shaper = ResponseShaper(ResponseSealer(KEYS, KEY_ID, b"n" * 32), StreamShape.parse(padding, 20), START)
        if fits:
            shaper.head(head)
            assert shaper.due() is not None
        else:
            with pytest.raises(ValueError, match="does not fit"):
                shaper.head(head)


@pytest.mark.parametrize("length", range(30, 56))
def test_a_head_that_fills_its_record_leaves_the_body_for_the_next(length: int) -> None:
    head = Head(status=200, headers=[Header(name="", value="y" * (length - 9))])
    sent, payloads = run("constant-64", Script(0.0, ((0.0, b"body"),), 0.0, head))
    assert received(payloads) == (head, b"body", End())
    assert plaintext_sizes(sent) == [64] * len(sent)


@pytest.mark.parametrize("length", [1, 10, 14, 15, 16, 17, 40, 47, 48, 49])
def test_an_end_that_does_not_fit_behind_the_body_takes_a_record_of_its_own(length: int) -> None:
    script = Script(0.0, ((0.03, bytes(length)),), 0.0, end=End(receipt=b"r" * 35))
    sent, payloads = run("constant-64", script)
    assert received(payloads) == (HEAD, script.body, script.end)
    assert plaintext_sizes(sent) == [64] * len(sent)


@pytest.mark.parametrize("padding", ["none", "bucket-64", "constant-512"])
def test_a_signed_receipt_arrives_with_the_end(padding: str) -> None:
    end = End(receipt=b"r" * 300, signature=b"s" * 64)
    _, payloads = run(padding, Script(0.0, ((0.0, b"x" * 400),), 0.0, end=end))
    assert received(payloads) == (HEAD, b"x" * 400, end)


def test_an_end_that_does_not_fit_into_a_record_is_refused() -> None:
    shaper = ResponseShaper(ResponseSealer(KEYS, KEY_ID, b"n" * 32), StreamShape.parse("constant-64", 20), START)
    shaper.head(HEAD)
    with pytest.raises(ValueError, match="does not fit"):
        shaper.end(End(receipt=b"", signature=b"s" * 64))
