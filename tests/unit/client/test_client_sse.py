"""Server-sent events: how the bytes were cut on their way makes no difference, and a cut stream is noticed."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_worker import chunk, sse
from hypothesis import given, settings
from hypothesis import strategies as st

from strongroom.client.errors import ResponseBroken
from strongroom.client.sse import events


async def body(pieces: list[bytes], failure: Exception | None = None) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
    if failure is not None:
        raise failure


async def read(pieces: list[bytes]) -> list[dict[str, Any]]:
    return [event async for event in events(body(pieces))]


TEXTS = ["plain", "", "two\n\nlines", "data: [DONE]", "é\u2028", "\U0001f600"]


@settings(deadline=None, max_examples=100)
@given(cuts=st.lists(st.integers(0, 1000), max_size=12))
async def test_any_split_of_the_bytes_gives_the_same_events(cuts: list[int]) -> None:
    whole = b"".join(sse(*TEXTS))
    bounds = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    pieces = [whole[a:b] for a, b in itertools.pairwise(bounds)]
    assert await read(pieces) == [chunk(text) for text in TEXTS]


async def test_single_bytes_give_the_same_events() -> None:
    whole = b"".join(sse(*TEXTS))
    assert await read([whole[i : i + 1] for i in range(len(whole))]) == [chunk(text) for text in TEXTS]


async def test_utf_8_that_is_not_escaped_survives_a_cut_within_a_character() -> None:
    raw = 'data: {"a":"é"}\n\n'.encode()
    assert await read([raw[:12], raw[12:]]) == [{"a": "é"}]


async def test_events_without_data_are_skipped() -> None:
    assert await read([b"\n\ndata:\n\ndata: {}\n\n", b"data: [DONE]\n\n"]) == [{}]


async def test_the_stream_is_read_to_its_end_beyond_done() -> None:
    """What comes last is the proof that nothing was cut off."""
    stream = events(body(sse("all"), ResponseBroken("cut")))
    assert await anext(stream) == chunk("all")
    with pytest.raises(ResponseBroken):
        await anext(stream)
