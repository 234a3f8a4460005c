"""Nothing that holds a secret shows it: printed, formatted, logged, pickled, copied or in a traceback."""

import base64
import copy
import dataclasses
import json
import logging
import pickle
import pprint
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from strongroom.protocol import cache, request
from strongroom.protocol.cache import Namespace
from strongroom.protocol.derive import hkdf
from strongroom.protocol.errors import MalformedKey, RequestRefused, WeakSalt
from strongroom.protocol.keys import IdentityKey
from strongroom.protocol.response import RecordKeys
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import Header, InferenceRequest

WORD = b"CANARY-in-a-mine"
KEY_SECRET = WORD * 6
REQUEST_SECRET = WORD * 2
CONTENT = InferenceRequest(path="/CANARY-in-a-mine", headers=[Header(name="a", value=WORD.decode())], body=WORD)
KEY = IdentityKey(Secret(KEY_SECRET))
EXCHANGE = request.seal([KEY.public], CONTENT, random=lambda count: REQUEST_SECRET[:count])
PENDING = request.RequestOpener([KEY]).open(EXCHANGE.sealed)
ADMITTED = PENDING.admit(fresh=True)
ANSWERED = PENDING.admit(fresh=True)
NAMESPACE = cache.namespace("x" * 43, bytes(32))

HOLDERS: dict[str, Any] = {
    "Secret": Secret(WORD),
    "Namespace": NAMESPACE,
    "Namespace of the canary": Namespace(WORD),
    "IdentityKey": KEY,
    "ClientExchange": EXCHANGE,
    "PendingRequest": PENDING,
    "AdmittedRequest": ADMITTED,
    "RecordKeys": RecordKeys(Secret(WORD * 2), bytes(32)),
    "RequestOpener": request.RequestOpener([KEY]),
    "ResponseSealer": ANSWERED.respond(bytes(32)),
    "ResponseOpener": EXCHANGE.response(),
}
_DERIVED = [
    NAMESPACE.expose(),
    hkdf(REQUEST_SECRET, info=b"strongroom/1 request"),
    *(hkdf(REQUEST_SECRET, info=b"strongroom/1 response" + KEY.public.key_id + PENDING._keys.transcript_hash),),
]
SECRETS = [WORD, *_DERIVED]


def forms(secret: bytes) -> list[str]:
    """The ways in which bytes end up in text."""
    return [
        *(repr(secret)[2:-1], secret.hex(), secret.hex().upper(), str(list(secret))[1:-1]),
        # Of the encodings in blocks of three bytes, what does not depend on the neighbours.
        *(base64.b64encode(secret)[:20].decode(), base64.urlsafe_b64encode(secret)[:20].decode()),
    ]


def assert_clean(text: str) -> None:
    for secret in SECRETS:
        for form in forms(secret):
            assert form not in text


def with_locals(error: BaseException) -> str:
    return "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())


@pytest.fixture(params=HOLDERS)
def holder(request: pytest.FixtureRequest) -> Any:
    return HOLDERS[request.param]


def test_the_hunt_finds_a_secret_that_is_shown() -> None:
    for shown in (f"{WORD!r}", WORD.hex(), repr(InferenceRequest(body=WORD)), base64.b64encode(WORD * 2).decode()):
        with pytest.raises(AssertionError):
            assert_clean(shown)


@pytest.mark.parametrize(
    "show",
    [repr, str, format, pprint.pformat, ascii, lambda held: "%s %r" % (held, held), lambda held: f"{held} {held!r}"],  # noqa: UP031
    ids=["repr", "str", "format", "pprint", "ascii", "percent", "f-string"],
)
def test_what_holds_a_secret_does_not_print_it(holder: Any, show: Callable[[Any], str]) -> None:
    text = show(holder)
    assert type(holder).__name__ in text
    assert_clean(text)
    assert_clean(show([holder, {"a": holder}]) if show is not format else text)


def test_what_holds_a_secret_does_not_show_it_in_a_log(holder: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").debug("%s %r", holder, holder, extra={"held": holder})
    assert type(holder).__name__ in caplog.text
    assert_clean(caplog.text)
    assert_clean(repr(vars(caplog.records[0])))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_holds_a_secret_is_not_pickled(holder: Any, protocol: int) -> None:
    with pytest.raises(TypeError) as refused:
        pickle.dumps(holder, protocol)
    assert_clean(with_locals(refused.value))


def test_what_holds_a_secret_is_neither_copied_nor_serialised(holder: Any) -> None:
    for serialise in (copy.deepcopy, json.dumps, bytes):
        with pytest.raises(TypeError) as refused:
            serialise(holder)
        assert_clean(str(refused.value))


@pytest.mark.parametrize("name", ["ClientExchange", "AdmittedRequest", "RecordKeys"])
def test_the_fields_of_what_holds_a_secret_are_not_listed(name: str) -> None:
    with pytest.raises(TypeError) as refused:
        dataclasses.asdict(HOLDERS[name])
    assert_clean(str(refused.value))


def test_what_holds_a_secret_does_not_show_it_in_a_traceback_with_locals(holder: Any) -> None:
    def fail(held: Any) -> None:
        local = held
        raise RuntimeError(f"failed with {local}")

    with pytest.raises(RuntimeError) as failed:
        fail(holder)
    text = with_locals(failed.value)
    assert type(holder).__name__ in text
    assert "local =" in text
    # The fixture's own locals are not of interest, and hold nothing but the holder.
    assert_clean(text)


def test_two_secrets_are_not_compared_by_value() -> None:
    # A comparison by value would take time that depends on the value.
    assert Secret(WORD) != Secret(bytes(WORD))
    assert Secret(WORD).expose() == WORD


def test_a_secret_has_no_attribute_dictionary() -> None:
    with pytest.raises(TypeError):
        vars(Secret(WORD))


def refuse_wrong_key() -> None:
    IdentityKey(Secret(KEY_SECRET[:-1]))


def refuse_replay() -> None:
    request.RequestOpener([KEY]).open(EXCHANGE.sealed).admit(fresh=False)


def refuse_changed_request() -> None:
    request.RequestOpener([KEY]).open(EXCHANGE.sealed[:-1] + b"x")


def refuse_salt() -> None:
    cache.check_cache_salt(WORD.decode() * 4)


@pytest.mark.parametrize(
    ("refuse", "error"),
    [
        (refuse_wrong_key, MalformedKey),
        (refuse_replay, RequestRefused),
        (refuse_changed_request, RequestRefused),
        (refuse_salt, WeakSalt),
    ],
    ids=["key", "replay", "request", "salt"],
)
def test_a_refusal_and_its_causes_quote_no_secret(refuse: Callable[[], None], error: type[Exception]) -> None:
    with pytest.raises(error) as refused:
        refuse()
    assert_clean("".join(traceback.format_exception(refused.value)))
    assert_clean(repr(refused.value.args))


def test_a_refused_private_key_does_not_stand_in_a_traceback_with_locals() -> None:
    with pytest.raises(MalformedKey) as refused:
        refuse_wrong_key()
    assert_clean(with_locals(refused.value))
