"""When and how large records leave: groups frames over a tick and pads them (docs/protocol.md, section 4).

No I/O and no clock of its own: the caller passes the time, in seconds of any monotonic clock, and sleeps until
`due()`. The sizes and times of records are all that an observer of the network learns.
"""

import math

from strongroom.protocol.limits import MAX_RECORD_PLAINTEXT_BYTES
from strongroom.protocol.padding import StreamShape
from strongroom.protocol.response import ResponseSealer
from strongroom.protocol.v1.strongroom_pb2 import End, Frame, Head, ResponseRecord

# Upper bound of what protobuf adds to a body as a frame of a record: two tags, two lengths.
_BODY_OVERHEAD = 12


class ResponseShaper:
    """Turns one response - a head, pieces of a body, an end - into sealed payloads.

    none      whatever waits leaves at once
    bucket    what arrives within a tick leaves as one record, its size a multiple of N
    constant  one record of N bytes each tick, from the tick after the start, empty ones included
    """

    def __init__(self, sealer: ResponseSealer, shape: StreamShape, start: float) -> None:
        self._sealer = sealer
        self._shape = shape
        self._tick = shape.tick_ms / 1000
        self._capacity = shape.capacity(MAX_RECORD_PLAINTEXT_BYTES)
        self._next = start + self._tick if shape.kind == "constant" else -math.inf
        self._head: Head | None = None
        self._body = bytearray()
        self._end: End | None = None
        self.done = False

    def head(self, head: Head) -> None:
        """Queue the status and headers; raises `ValueError` if they do not fit into one record of this shape."""
        if ResponseRecord(frames=[Frame(head=head)]).ByteSize() > self._capacity:
            raise ValueError("the head does not fit into a record of this shape")
        self._head = head

    def body(self, body: bytes) -> None:
        """Queue a piece of the body; pieces that wait together are joined."""
        self._body += body

    def end(self, end: End) -> None:
        """Queue the end; nothing may follow. Raises `ValueError` if it does not fit into one record of this shape."""
        if ResponseRecord(frames=[Frame(end=end)]).ByteSize() > self._capacity:
            raise ValueError("the end does not fit into a record of this shape")
        self._end = end

    def due(self) -> float | None:
        """When the next record leaves; None while there is nothing to send."""
        waiting = self._head is not None or self._body or self._end is not None
        if self.done or (self._shape.kind != "constant" and not waiting):
            return None
        return self._next

    def take(self, now: float) -> bytes | None:
        """The payload that leaves at `now`, or None before it is due. Call until None: one tick may need several."""
        due = self.due()
        if due is None or now < due:
            return None
        record = self._fill()
        content = record.SerializeToString()
        self.done = bool(record.frames) and record.frames[-1].HasField("end")
        payload = self._sealer.seal(content, size=self._shape.record_size(len(content)), last=self.done)
        if self._shape.kind == "constant":
            # Ticks count from the start: a late one does not shift those after it.
            self._next = due + self._tick
        elif self._shape.kind == "bucket" and not self._body:
            self._next = now + self._tick
        return payload

    def _fill(self) -> ResponseRecord:
        """Take from the queue what fits into one record; the body is cut where the record is full."""
        record = ResponseRecord()
        if self._head is not None:
            record.frames.add(head=self._head)
            self._head = None
        room = self._capacity - record.ByteSize() - _BODY_OVERHEAD
        if self._body and room > 0:
            record.frames.add(body=bytes(self._body[:room]))
            del self._body[:room]
        if self._end is not None and not self._body:
            ended = ResponseRecord(frames=[*record.frames, Frame(end=self._end)])
            if ended.ByteSize() <= self._capacity:
                self._end = None
                return ended
        return record
