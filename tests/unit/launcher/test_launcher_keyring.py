"""The key ring against a model of it: rotation is a function of time, and admission remembers as long as it must."""

import hashlib
import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strongroom.launcher.keyring import Admission, KeyRing
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.limits import MAX_REMEMBERED_RETIRED_KEYS
from strongroom.protocol.secret import Secret

LIFETIME = 1000
UNIX = 1_800_000_000
CLOCK_TOLERANCE = 300


def counted() -> Any:
    """A random source that gives other bytes each time, and the same in each run."""
    counter = itertools.count()
    return lambda size: hashlib.shake_256(str(next(counter)).encode()).digest(size)


def ring(grace: float = 100, capacity: int = 16) -> KeyRing:
    made = KeyRing(random=counted(), lifetime=LIFETIME, grace=grace, capacity=capacity)
    made.start(0, UNIX)
    return made


def held(keys: KeyRing) -> list[bytes]:
    """Ids of the keys that open requests, oldest first."""
    return [IdentityKey(Secret(secret)).public.key_id for secret in keys.secrets()]


def claimed(keys: KeyRing) -> list[bytes]:
    return [bytes.fromhex(key.key_id) for key in keys.claimed()]


def move(keys: KeyRing, seconds: float) -> bool:
    """Both clocks at `seconds` after the start."""
    return keys.advance(seconds, UNIX + seconds)


class Ring(RuleBasedStateMachine):
    """Keys are numbered from 1 since the last replacement. Key n is current from (n-1) to n lifetimes after that,
    and destroyed one grace later; the ring looks at the clock only when `advance` is called.
    """

    @initialize(grace=st.sampled_from([1, 100, 2500]), capacity=st.integers(1, 6))
    def begin(self, grace: int, capacity: int) -> None:
        self.keys = ring(grace, capacity)
        self.grace, self.capacity = grace, capacity
        self.now = self.advanced = self.started = 0.0
        self.gone: list[bytes] = []
        self.series: list[bytes] = held(self.keys)
        self.seen: dict[bytes, set[bytes]] = {}

    def held_numbers(self) -> range:
        age = self.advanced - self.started
        current = math.floor(age / LIFETIME) + 1
        oldest = min(current, max(1, math.floor((age - self.grace) / LIFETIME) + 1))
        return range(oldest, current + 2)

    def expected(self) -> list[bytes]:
        numbers = self.held_numbers()
        return self.series[numbers.start - 1 : numbers.stop - 1]

    @rule(step=st.one_of(st.integers(0, 300), st.integers(0, 3 * LIFETIME), st.just(40 * LIFETIME)))
    def advance(self, step: int) -> None:
        self.now += step
        before, version = (claimed(self.keys), held(self.keys)), self.keys.version
        changed = self.keys.advance(self.now, UNIX + self.now)
        self.advanced = self.now
        assert changed == (before != (claimed(self.keys), held(self.keys))) == (self.keys.version != version)
        # Keys that came and went within this step show only in the list of destroyed ones.
        every = [*self.keys.retired_key_ids(), *held(self.keys)]
        start = every.index(self.series[0])
        assert every[start : start + len(self.series)] == self.series
        self.series = every[start:]

    @rule()
    def wait_without_advancing(self) -> None:
        self.now += LIFETIME // 3

    @rule()
    def replace(self) -> None:
        self.gone += self.series
        self.keys.replace(self.now, UNIX + self.now)
        self.started = self.advanced = self.now
        self.series = held(self.keys)
        self.seen.clear()

    @rule(replay_id=st.integers(0, 9), pick=st.integers(0, 20))
    def admit(self, replay_id: int, pick: int) -> None:
        opening = self.expected()
        every = [*self.gone[-3:], *self.series[-8:], b"a stranger's key"]
        key_id = every[pick % len(every)]
        name = bytes([replay_id]) * 16
        live = {known for known, keys in self.seen.items() if keys & set(opening)}
        if key_id not in opening:
            wanted = Admission.UNKNOWN_KEY
        elif name in live:
            wanted = Admission.REPLAY
        elif len(live) >= self.capacity:
            wanted = Admission.FULL
        else:
            wanted = Admission.FRESH
            self.seen[name] = set(opening)
        assert self.keys.admit(name, key_id) is wanted

    @invariant()
    def holds_exactly_the_keys_that_the_model_has(self) -> None:
        assert held(self.keys) == self.expected()
        assert claimed(self.keys) == self.expected()[-2:]
        destroyed = [*self.gone, *self.series[: -len(self.expected())]]
        assert self.keys.retired_key_ids() == destroyed[-MAX_REMEMBERED_RETIRED_KEYS:]

    @invariant()
    def knows_when_to_be_called_next(self) -> None:
        numbers = self.held_numbers()
        times = [number * LIFETIME + self.grace for number in numbers[:-2]] + [numbers[-2] * LIFETIME]
        assert self.keys.next_change() == self.started + min(times)


Ring.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=25)
TestRing = Ring.TestCase


def test_a_key_opens_until_its_grace_is_over_and_not_longer() -> None:
    keys = ring(grace=100)
    first = claimed(keys)[0]
    assert not move(keys, LIFETIME - 1)
    assert move(keys, LIFETIME)
    assert keys.admit(bytes(16), first) is Admission.FRESH
    assert not move(keys, LIFETIME + 99)
    assert first in held(keys)
    assert move(keys, LIFETIME + 100)
    assert first not in held(keys)
    assert keys.retired_key_ids() == [first]
    assert keys.admit(b"1" * 16, first) is Admission.UNKNOWN_KEY


def test_the_next_key_becomes_current_unchanged() -> None:
    keys = ring()
    following = keys.claimed()[1]
    move(keys, LIFETIME)
    current = keys.claimed()[0]
    assert (current.key_id, current.public_key, current.suite) == (
        following.key_id,
        following.public_key,
        following.suite,
    )
    assert (current.not_before, current.not_after) == (following.not_before, following.not_after)


def test_claimed_keys_hold_what_the_private_ones_open() -> None:
    keys = ring()
    for claim, secret in zip(keys.claimed(), keys.secrets(), strict=True):
        assert claim.identity() == IdentityKey(Secret(secret)).public


def test_stated_times_follow_each_other_without_a_gap() -> None:
    keys = ring()
    for turn in range(1, 5):
        current, following = keys.claimed()
        assert current.not_after == following.not_before == UNIX + turn * LIFETIME
        assert following.not_after == UNIX + (turn + 1) * LIFETIME
        move(keys, turn * LIFETIME)


@pytest.mark.parametrize("age", [0, 1, LIFETIME / 2])
def test_an_id_is_refused_as_long_as_any_key_held_with_it_lives(age: float) -> None:
    """The next key was held when the id came, so its life counts, through two rotations."""
    keys = ring(grace=100)
    move(keys, age)
    first, second = claimed(keys)
    assert keys.admit(bytes(16), first) is Admission.FRESH
    for time in (LIFETIME, LIFETIME + 100, 2 * LIFETIME, 2 * LIFETIME + 99):
        move(keys, time)
        assert keys.admit(bytes(16), second) is Admission.REPLAY
    move(keys, 2 * LIFETIME + 100)
    assert keys.admit(bytes(16), claimed(keys)[0]) is Admission.FRESH


def test_a_full_set_refuses_new_ids_and_still_tells_replays_apart() -> None:
    keys = ring(capacity=3)
    key = claimed(keys)[0]
    ids = [bytes([number]) * 16 for number in range(4)]
    assert [keys.admit(i, key) for i in ids] == [Admission.FRESH] * 3 + [Admission.FULL]
    assert [keys.admit(i, key) for i in ids] == [Admission.REPLAY] * 3 + [Admission.FULL]
    # Room comes back when the keys are gone.
    move(keys, 2 * LIFETIME + 100)
    assert keys.admit(ids[3], claimed(keys)[0]) is Admission.FRESH


def test_an_unknown_key_takes_no_room() -> None:
    keys = ring(capacity=1)
    assert keys.admit(bytes(16), bytes(16)) is Admission.UNKNOWN_KEY
    assert keys.admit(bytes(16), claimed(keys)[0]) is Admission.FRESH


def test_replacing_destroys_every_key_at_once() -> None:
    keys = ring(grace=2500)
    move(keys, 2 * LIFETIME)
    before, version = held(keys), keys.version
    assert len(before) == 4
    keys.replace(2 * LIFETIME, UNIX + 2 * LIFETIME)
    assert not set(held(keys)) & set(before)
    assert len(held(keys)) == 2
    assert keys.retired_key_ids() == before
    assert all(keys.admit(bytes(16), key) is Admission.UNKNOWN_KEY for key in before)
    assert keys.version > version
    assert keys.claimed()[0].not_before == UNIX + 2 * LIFETIME


def test_only_the_last_1024_destroyed_ids_are_remembered() -> None:
    keys = ring()
    first = claimed(keys)
    move(keys, 1030 * LIFETIME)
    remembered = keys.retired_key_ids()
    assert len(remembered) == len(set(remembered)) == MAX_REMEMBERED_RETIRED_KEYS
    assert first[0] not in remembered
    assert not set(remembered) & set(held(keys))


def says_that_it_is_valid(keys: KeyRing, unix: float) -> bool:
    current = keys.claimed()[0]
    return current.not_before - CLOCK_TOLERANCE <= unix <= current.not_after + CLOCK_TOLERANCE


@settings(deadline=None, max_examples=60)
@given(steps=st.lists(st.integers(1, LIFETIME), min_size=1, max_size=12))
def test_the_current_key_states_that_it_is_valid_now(steps: list[int]) -> None:
    keys = ring()
    for now in itertools.accumulate(steps):
        move(keys, now)
        assert says_that_it_is_valid(keys, UNIX + now)


@pytest.mark.parametrize("lifetimes", [1.5, 2.5, 3.5, 4.5, 100.5])
def test_after_a_long_pause_of_the_machine_the_current_key_states_that_it_is_valid_now(lifetimes: float) -> None:
    keys = ring()
    now = lifetimes * LIFETIME
    move(keys, now)
    assert says_that_it_is_valid(keys, UNIX + now)
    # ... and goes on doing so.
    for _ in range(8):
        now += LIFETIME / 2
        move(keys, now)
        assert says_that_it_is_valid(keys, UNIX + now)


def test_after_a_step_of_the_wall_clock_alone_later_keys_state_that_they_are_valid() -> None:
    """NTP corrects a clock that was wrong at boot, or the machine slept: the monotonic clock did not move."""
    keys = ring()
    step = 50 * LIFETIME
    for half in range(2, 12):
        now = half * LIFETIME / 2
        keys.advance(now, UNIX + step + now)
        assert says_that_it_is_valid(keys, UNIX + step + now)
