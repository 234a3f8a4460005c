"""Identity keys over time, and the replay set that lives and dies with them.

No clock of its own: callers pass monotonic seconds, which decide, and Unix seconds, which claims state.

    current --lifetime--> retired, still opens --grace--> destroyed, only its id is remembered
    next becomes current at that moment, and a new next is made
"""

import collections
import dataclasses
import enum

from strongroom.protocol import limits
from strongroom.protocol.canonical import base64url
from strongroom.protocol.claims import Key
from strongroom.protocol.keys import SUITE_NAME, IdentityKey, RandomSource


class Admission(enum.Enum):
    """The outcome of one test-and-insert."""

    FRESH = "fresh"
    REPLAY = "replay"
    FULL = "full"
    UNKNOWN_KEY = "unknown-key"


@dataclasses.dataclass
class _Held:
    """A key that opens requests. `serial` counts keys of this ring; keys are destroyed in that order."""

    key: IdentityKey
    serial: int
    not_before: int
    not_after: int
    ends: float | None = None


class KeyRing:
    """The keys of one worker. `version` counts their changes."""

    def __init__(self, *, random: RandomSource, lifetime: float, grace: float, capacity: int) -> None:
        self._random = random
        self._lifetime = lifetime
        self._grace = grace
        self._capacity = capacity
        self._serial = 0
        self._held: collections.deque[_Held] = collections.deque()
        self._destroyed: collections.deque[bytes] = collections.deque(maxlen=limits.MAX_REMEMBERED_RETIRED_KEYS)
        # Ids by the serial of the newest key held when they came: with that key the last one that could open them
        # a second time is gone.
        self._seen: dict[int, set[bytes]] = {}
        self.version = 0

    def start(self, now: float, unix: float) -> None:
        """Make the first two keys."""
        first = int(unix)
        self._held.append(self._make(first, now + self._lifetime))
        self._held.append(self._make(first + int(self._lifetime), None))
        self.version += 1

    def replace(self, now: float, unix: float) -> None:
        """Destroy every key at once and start again: what they stood for has changed."""
        while self._held:
            self._destroy()
        self.start(now, unix)

    def advance(self, now: float, unix: float) -> bool:
        """Retire and destroy what is due at `now`; True if anything changed."""
        before = self.version
        current = self._current()
        while current.ends is not None and current.ends <= now:
            following = self._held[-1]
            # What was stated beforehand may be off by now: the machine paused, or somebody set the clock.
            following.not_before = int(unix - (now - current.ends))
            following.not_after = following.not_before + int(self._lifetime)
            following.ends = current.ends + self._lifetime
            current.ends += self._grace
            self._held.append(self._make(following.not_after, None))
            self.version += 1
            current = following
        while self._held[0] is not current and (self._held[0].ends or 0) <= now:
            self._destroy()
            self.version += 1
        return self.version != before

    def next_change(self) -> float:
        """When `advance` has something to do next."""
        return min(held.ends for held in self._held if held.ends is not None)

    def admit(self, replay_id: bytes, key_id: bytes) -> Admission:
        """One atomic test-and-insert; the id stays until every key held now is destroyed."""
        if all(held.key.public.key_id != key_id for held in self._held):
            return Admission.UNKNOWN_KEY
        if any(replay_id in ids for ids in self._seen.values()):
            return Admission.REPLAY
        if sum(map(len, self._seen.values())) >= self._capacity:
            return Admission.FULL
        self._seen.setdefault(self._held[-1].serial, set()).add(replay_id)
        return Admission.FRESH

    def claimed(self) -> list[Key]:
        """The value of `claims.keys`: the current key, then the next."""
        return [
            Key(
                key_id=held.key.public.key_id.hex(),
                suite=SUITE_NAME,
                public_key=base64url(held.key.public.public_key),
                not_before=held.not_before,
                not_after=held.not_after,
            )
            for held in list(self._held)[-2:]
        ]

    def secrets(self) -> list[bytes]:
        """The private halves of all keys that open requests, for front ends."""
        return [held.key.secret.expose() for held in self._held]

    def retired_key_ids(self) -> list[bytes]:
        """Ids of destroyed keys that still count as this worker's, the last 1,024."""
        return list(self._destroyed)

    def _current(self) -> _Held:
        return self._held[-2]

    def _make(self, not_before: int, ends: float | None) -> _Held:
        self._serial += 1
        key = IdentityKey.generate(self._random)
        return _Held(key, self._serial, not_before, not_before + int(self._lifetime), ends)

    def _destroy(self) -> None:
        gone = self._held.popleft()
        self._destroyed.append(gone.key.public.key_id)
        self._seen.pop(gone.serial, None)
