"""Lengths that say little: Padme, the length prefix, and the lattice of stream shapes (sections 3 and 4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strongroom.protocol.errors import BadProfile
from strongroom.protocol.limits import MAX_PADDING_BYTES, MAX_TICK_MS, MIN_PADDING_BYTES
from strongroom.protocol.padding import BadPadding, StreamShape, pad, padme, request_size, unpad

SIZES = st.integers(MIN_PADDING_BYTES, MAX_PADDING_BYTES)
SHAPES = st.one_of(
    st.builds(lambda tick: StreamShape.parse("none", tick), st.integers(0, MAX_TICK_MS)),
    st.builds(lambda n, tick: StreamShape.parse(f"bucket-{n}", tick), SIZES, st.integers(0, MAX_TICK_MS)),
    st.builds(lambda n, tick: StreamShape.parse(f"constant-{n}", tick), SIZES, st.integers(1, MAX_TICK_MS)),
)
LENGTHS = st.one_of(st.integers(0, 5000), st.integers(0, 2**40))


@given(length=LENGTHS)
def test_padme_holds_its_content_and_wastes_at_most_12_percent(length: int) -> None:
    assert length <= padme(length) <= length * 1.12


@given(length=LENGTHS)
def test_padme_of_a_padme_size_is_itself(length: int) -> None:
    assert padme(padme(length)) == padme(length)


@given(shorter=LENGTHS, longer=LENGTHS)
def test_padme_never_shrinks_as_content_grows(shorter: int, longer: int) -> None:
    shorter, longer = sorted((shorter, longer))
    assert padme(shorter) <= padme(longer)


def test_padme_leaves_few_sizes_to_tell_apart() -> None:
    assert len({padme(length) for length in range(1, 100_000)}) < 200


def test_padme_follows_the_published_definition() -> None:
    # Nikitin et al., algorithm 1: E = floor(log2 L), S = floor(log2 E) + 1, clear the last E - S bits, upwards.
    for length in range(2, 20_000):
        exponent = length.bit_length() - 1
        unit = 1 << (exponent - exponent.bit_length())
        assert padme(length) == -(-length // unit) * unit


@given(length=LENGTHS)
def test_a_request_has_at_least_1024_bytes_and_room_for_its_prefix(length: int) -> None:
    assert request_size(length) >= max(1024, length + 4)
    assert request_size(length) in {1024, padme(length + 4)}


@given(content=st.binary(max_size=300), extra=st.integers(0, 300))
def test_padded_content_comes_back(content: bytes, extra: int) -> None:
    size = 4 + len(content) + extra
    padded = pad(content, size)
    assert len(padded) == size
    assert unpad(padded) == content


@given(content=st.binary(min_size=1, max_size=100), missing=st.integers(1, 104))
def test_content_that_does_not_fit_is_not_cut(content: bytes, missing: int) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        pad(content, 4 + len(content) - missing)


@given(raw=st.binary(max_size=64))
def test_what_unpads_is_what_padding_would_make(raw: bytes) -> None:
    try:
        content = unpad(raw)
    except BadPadding:
        return
    assert pad(content, len(raw)) == raw


@given(content=st.binary(max_size=50), zeros=st.integers(1, 50), data=st.data())
def test_padding_with_a_byte_that_is_not_zero_is_refused(content: bytes, zeros: int, data: st.DataObject) -> None:
    padded = bytearray(pad(content, 4 + len(content) + zeros))
    padded[data.draw(st.integers(4 + len(content), len(padded) - 1))] = data.draw(st.integers(1, 255))
    with pytest.raises(BadPadding):
        unpad(bytes(padded))


@pytest.mark.parametrize("raw", [b"", b"\0", b"\0\0\0", b"\0\0\0\1", b"\xff\xff\xff\xff" + bytes(60)])
def test_a_length_prefix_that_does_not_fit_is_refused(raw: bytes) -> None:
    with pytest.raises(BadPadding):
        unpad(raw)


@given(shape=SHAPES)
def test_a_shape_is_read_back_from_its_text(shape: StreamShape) -> None:
    assert StreamShape.parse(shape.padding, shape.tick_ms) == shape


@pytest.mark.parametrize(
    ("padding", "tick_ms"),
    [
        ("", 20),
        ("None", 20),
        ("none ", 20),
        ("none\n", 20),
        ("none-64", 20),
        ("bucket", 20),
        ("bucket-", 20),
        ("bucket-0", 20),
        ("bucket-063", 20),
        ("bucket-0256", 20),
        ("bucket--256", 20),
        ("bucket-+256", 20),
        ("bucket-256\n", 20),
        ("bucket-2_56", 20),
        ("bucket-\u0662\u0665\u0666", 20),
        ("bucket-63", 20),
        ("bucket-65537", 20),
        ("bucket-9999999", 20),
        ("bucket-99999999999999999999", 20),
        ("constant-63", 20),
        ("constant-65537", 20),
        ("constant-512", 0),
        ("constant-512", -1),
        ("constant-512", 1001),
        ("none", 1001),
        ("none", -1),
        ("random-256", 20),
    ],
)
def test_a_profile_outside_the_grammar_or_the_limits_is_refused(padding: str, tick_ms: int) -> None:
    with pytest.raises(BadProfile):
        StreamShape.parse(padding, tick_ms)


@pytest.mark.parametrize("padding", ["none", "bucket-64", "bucket-65536", "constant-64", "constant-65536"])
def test_a_profile_at_a_limit_is_accepted(padding: str) -> None:
    assert StreamShape.parse(padding, 1000).padding == padding


@given(
    padding=st.one_of(st.text(max_size=20), st.from_regex(r"(bucket|constant)-[0-9]+")), tick_ms=st.integers(-5, 2000)
)
def test_arbitrary_text_gives_a_shape_or_bad_profile(padding: str, tick_ms: int) -> None:
    try:
        shape = StreamShape.parse(padding, tick_ms)
    except BadProfile:
        return
    assert shape.padding == padding
    assert shape.tick_ms == tick_ms


@given(one=SHAPES, other=SHAPES)
def test_the_stronger_of_two_shapes_does_not_depend_on_their_order(one: StreamShape, other: StreamShape) -> None:
    assert one.stronger(other) == other.stronger(one)


@given(one=SHAPES, two=SHAPES, three=SHAPES)
def test_the_stronger_of_three_shapes_does_not_depend_on_grouping(
    one: StreamShape, two: StreamShape, three: StreamShape
) -> None:
    assert one.stronger(two).stronger(three) == one.stronger(two.stronger(three))


@given(shape=SHAPES)
def test_a_shape_is_no_stronger_than_itself(shape: StreamShape) -> None:
    assert shape.stronger(shape) == shape
    assert shape.covers(shape)


@given(one=SHAPES, other=SHAPES)
def test_the_stronger_shape_covers_both_and_is_itself_a_legal_one(one: StreamShape, other: StreamShape) -> None:
    both = one.stronger(other)
    assert both.covers(one)
    assert both.covers(other)
    assert StreamShape.parse(both.padding, both.tick_ms) == both


@given(one=SHAPES, other=SHAPES, third=SHAPES)
def test_what_covers_both_covers_the_stronger_of_them(one: StreamShape, other: StreamShape, third: StreamShape) -> None:
    if third.covers(one) and third.covers(other):
        assert third.covers(one.stronger(other))
    both = one.stronger(other)
    assert both.stronger(third).covers(both)


@pytest.mark.parametrize(
    ("shape", "demand"),
    [
        (("none", 20), ("bucket-64", 20)),
        (("bucket-256", 20), ("constant-256", 20)),
        (("bucket-256", 20), ("bucket-512", 20)),
        (("constant-512", 20), ("constant-512", 21)),
        (("constant-256", 20), ("bucket-512", 20)),
    ],
)
def test_a_weaker_shape_does_not_cover_the_demand(shape: tuple[str, int], demand: tuple[str, int]) -> None:
    assert not StreamShape.parse(*shape).covers(StreamShape.parse(*demand))
    assert StreamShape.parse(*shape).stronger(StreamShape.parse(*demand)).covers(StreamShape.parse(*demand))


@given(shape=SHAPES, length=st.integers(0, 2**20))
def test_a_record_is_the_least_multiple_of_n_that_holds_its_content(shape: StreamShape, length: int) -> None:
    size = shape.record_size(length)
    assert size % shape.size == 0
    assert 4 + length <= size < 4 + length + shape.size


@given(shape=SHAPES, limit=st.integers(MAX_PADDING_BYTES, 2**20))
def test_a_full_record_stays_within_the_limit_and_one_byte_more_does_not(shape: StreamShape, limit: int) -> None:
    capacity = shape.capacity(limit)
    assert shape.record_size(capacity) == capacity + 4 <= limit
    if shape.kind == "constant":
        assert shape.record_size(capacity) == shape.size
    else:
        assert shape.record_size(capacity + 1) > limit
