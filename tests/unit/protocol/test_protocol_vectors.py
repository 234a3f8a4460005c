"""Known answers: every member of tests/vectors/protocol-v1.json, which shares no code with the package."""

import hashlib
import json
import pathlib
import runpy
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from strongroom.protocol import binding, cache, claims, keys, merkle, padding, receipt, request
from strongroom.protocol.derive import hkdf
from strongroom.protocol.errors import MalformedClaims, MalformedResponse, RequestRefused, WeakSalt
from strongroom.protocol.keys import IdentityKey, PublicIdentity
from strongroom.protocol.response import RecordKeys, ResponseOpener, ResponseSealer
from strongroom.protocol.secret import Secret
from strongroom.protocol.v1.strongroom_pb2 import End, Envelope, Head, InferenceRequest, SealedRequest

FILE = pathlib.Path(__file__).parents[2] / "vectors" / "protocol-v1.json"
VECTORS: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
ADDED = {
    *("salts", "claims", "simulated_evidence", "response_constant"),
    *("request_two_envelopes", "requests_refused", "responses_refused"),
}
# Of the members that an implementation independent of this project made, in its own order.
FROM_OUTSIDE = "c0bad455ae892a5f3ac437486d6fb0239b7fb5d626b6619af3922b17cb49b1a9"
CHECKED: dict[str, str] = {}


def checks(member: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Marks the test that looks at a member of the file."""

    def mark(test: Callable[..., None]) -> Callable[..., None]:
        CHECKED[member] = test.__name__
        return test

    return mark


# Cases that the code gets wrong today, by their `why`; the mark is strict, so a repair shows here.
def cases(member: str) -> list[Any]:
    return [pytest.param(case, id=case["why"]) for case in VECTORS[member]]


def private(key: dict[str, str]) -> IdentityKey:
    return IdentityKey(Secret(bytes.fromhex(key["mlkem768_seed"] + key["x25519_private"])))


def hexed(member: dict[str, Any], name: str) -> bytes:
    return bytes.fromhex(member[name])


def record_keys() -> RecordKeys:
    return RecordKeys(Secret(hexed(VECTORS["request"], "request_secret")), hexed(VECTORS["request"], "th"))


def test_no_member_of_the_file_is_left_unchecked() -> None:
    assert set(VECTORS) == set(CHECKED) | {"note"}
    assert all(VECTORS.values())


def test_the_members_from_outside_are_as_they_came() -> None:
    outside = {name: value for name, value in VECTORS.items() if name not in ADDED}
    assert hashlib.sha256(json.dumps(outside, indent=1).encode()).hexdigest() == FROM_OUTSIDE


@checks("key")
def test_a_private_key_gives_the_public_key_and_key_id() -> None:
    key = VECTORS["key"]
    identity = private(key).public
    assert identity.public_key == hexed(key, "public_key")
    assert identity.key_id == hexed(key, "key_id") == keys.key_id(identity.public_key)
    assert hexed(key, "suite_id") == keys.SUITE_ID


@pytest.mark.parametrize("who", ["one", "first of two", "second of two"])
@checks("request_two_envelopes")
def test_a_sealed_request_opens_with_each_key_that_it_was_sealed_to(who: str) -> None:
    two = VECTORS["request_two_envelopes"]
    vector = VECTORS["request"] if who == "one" else two
    key = private({"one": VECTORS["key"], "first of two": two["keys"][0], "second of two": two["keys"][1]}[who])
    pending = request.RequestOpener([key]).open(hexed(vector, "message"))
    assert pending.replay_id == hexed(vector, "replay_id")
    assert pending.key_id == key.public.key_id
    admitted = pending.admit(fresh=True)
    assert admitted.request == InferenceRequest.FromString(hexed(vector, "inference_request"))
    assert admitted._keys.transcript_hash == hexed(vector, "th")
    assert admitted._keys.request_secret.expose() == hexed(vector, "request_secret")


@pytest.mark.parametrize("member", ["request", "request_two_envelopes"])
@checks("request")
def test_the_steps_between_secret_and_ciphertext_are_as_published(member: str) -> None:
    vector = VECTORS[member]
    message = SealedRequest.FromString(hexed(vector, "message"))
    aad = request._aad(message.envelopes)
    k_req = hkdf(hexed(vector, "request_secret"), info=b"strongroom/1 request")
    assert hashlib.sha256(aad).hexdigest() == vector["aad_sha256"]
    assert k_req == hexed(vector, "k_req")
    assert hashlib.sha256(aad + message.ciphertext).hexdigest() == vector["th"]
    plaintext = AESGCM(k_req).decrypt(bytes(12), message.ciphertext, aad)
    content = hexed(vector, "inference_request")
    assert plaintext == padding.pad(content, padding.request_size(len(content)))
    assert len(plaintext) == vector["padded_length"]


@pytest.mark.parametrize("member", ["request", "request_two_envelopes"])
def test_the_client_makes_the_published_message_from_the_published_envelopes(
    member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = VECTORS[member]
    message = SealedRequest.FromString(hexed(vector, "message"))
    envelopes = {e.key_id: e.sealed for e in message.envelopes}
    # HPKE draws its own randomness, so the envelopes are replayed; everything else is computed.
    monkeypatch.setattr(PublicIdentity, "seal", lambda self, secret: envelopes[self.key_id])
    recipients = [private(key).public for key in vector.get("keys", [VECTORS["key"]])]
    content = InferenceRequest.FromString(hexed(vector, "inference_request"))
    exchange = request.seal(recipients, content, random=lambda n: hexed(vector, "request_secret")[:n])
    assert SealedRequest.FromString(exchange.sealed) == message
    assert exchange.sealed == hexed(vector, "message")


def test_the_published_envelope_and_ciphertext_are_those_of_the_message() -> None:
    vector = VECTORS["request"]
    envelope = Envelope(key_id=hexed(VECTORS["key"], "key_id"), sealed=hexed(vector, "sealed"))
    message = SealedRequest(envelopes=[envelope], ciphertext=hexed(vector, "ciphertext"))
    assert message.SerializeToString() == hexed(vector, "message")
    assert private(VECTORS["key"]).open(envelope.sealed).expose() == hexed(vector, "request_secret")


@pytest.mark.parametrize("case", cases("requests_refused"))
@checks("requests_refused")
def test_a_request_that_is_not_in_order_is_refused_with_the_published_code(case: dict[str, Any]) -> None:
    worker = [private(VECTORS["key"]), private(VECTORS["request_two_envelopes"]["keys"][0])]
    retired = [bytes.fromhex(key_id) for key_id in case.get("retired", [])]
    with pytest.raises(RequestRefused) as refused:
        request.RequestOpener(worker, retired).open(hexed(case, "message"))
    assert refused.value.code.code == case["code"]


@pytest.mark.parametrize("member", ["request", "request_two_envelopes"])
def test_the_worker_of_the_refused_requests_opens_the_good_ones(member: str) -> None:
    worker = [private(VECTORS["key"]), private(VECTORS["request_two_envelopes"]["keys"][0])]
    pending = request.RequestOpener(worker).open(hexed(VECTORS[member], "message"))
    assert pending.replay_id == hexed(VECTORS[member], "replay_id")


@pytest.mark.parametrize("member", ["response", "response_constant"])
@checks("response")
def test_a_response_is_sealed_to_the_published_payloads(member: str) -> None:
    vector, key_id = VECTORS[member], hexed(VECTORS["key"], "key_id")
    nonce = hexed(vector, "response_nonce")
    expected_key = AESGCM(hexed(vector, "k_res"))
    assert record_keys().cipher(key_id, nonce).encrypt(bytes(12), b"x", b"") == expected_key.encrypt(
        bytes(12), b"x", b""
    )
    shape = padding.StreamShape.parse(vector["padding"], 20)
    sealer = ResponseSealer(record_keys(), key_id, nonce)
    plaintexts = [bytes.fromhex(p) for p in vector["plaintexts"]]
    for index, (plaintext, payload) in enumerate(zip(plaintexts, vector["payloads"], strict=True)):
        frames = padding.unpad(plaintext)
        assert shape.record_size(len(frames)) == len(plaintext)
        sealed = sealer.seal(frames, size=len(plaintext), last=index == len(plaintexts) - 1)
        assert sealed.hex() == payload


@pytest.mark.parametrize(
    ("member", "pieces"),
    [
        ("response", [[b"data: {}\n\n"], [b"data: [DONE]\n\n"]]),
        ("response_constant", [[], [b"data: {}\n\n"], [], [b"data: [DONE]\n\n"], []]),
    ],
)
@checks("response_constant")
def test_the_published_payloads_open_to_head_body_and_end(member: str, pieces: list[list[bytes]]) -> None:
    opener = ResponseOpener(record_keys(), {hexed(VECTORS["key"], "key_id")})
    events = [opener.receive(bytes.fromhex(p)) for p in VECTORS[member]["payloads"]]
    opener.finish()
    head, end = events[0].pop(0), events[-1].pop()
    assert isinstance(head, Head)
    assert head.status == 200
    assert {h.name: h.value for h in head.headers} == {"content-type": "text/event-stream"}
    assert end == End()
    assert events == pieces


@pytest.mark.parametrize("case", cases("responses_refused"))
@checks("responses_refused")
def test_a_response_that_is_not_in_order_is_refused(case: dict[str, Any]) -> None:
    opener = ResponseOpener(record_keys(), {hexed(VECTORS["key"], "key_id")})

    def consume() -> None:
        for payload in case["payloads"]:
            opener.receive(bytes.fromhex(payload))
        opener.finish()

    with pytest.raises(MalformedResponse):
        consume()


@pytest.mark.parametrize("case", VECTORS["padding"], ids=lambda case: str(case["length"]))
@checks("padding")
def test_a_request_is_padded_to_the_published_size(case: dict[str, int]) -> None:
    assert padding.request_size(case["length"]) == case["padded"]


@pytest.mark.parametrize("case", VECTORS["merkle"], ids=lambda case: f"{len(case['nonces'])} nonces")
@checks("merkle")
def test_the_tree_of_nonces_has_the_published_root_and_paths(case: dict[str, Any]) -> None:
    nonces = [bytes.fromhex(n) for n in case["nonces"]]
    tree = merkle.NonceTree(nonces)
    assert tree.root == hexed(case, "root")
    for index, (nonce, path) in enumerate(zip(nonces, case["paths"], strict=True)):
        assert [step.hex() for step in tree.path(index)] == path
        assert merkle.root_of(nonce, [bytes.fromhex(step) for step in path], index, len(nonces)) == tree.root


@checks("attestation")
def test_what_the_evidence_commits_to_is_as_published() -> None:
    vector = VECTORS["attestation"]
    root, raw = hexed(vector, "root"), vector["claims_utf8"].encode()
    assert vector["root"] == VECTORS["merkle"][0]["root"]
    assert binding.report_data(root, raw) == hexed(vector, "report_data")
    assert binding.device_nonce(root, [hexed(VECTORS["key"], "key_id")]) == hexed(vector, "device_nonce_one_key")
    assert vector["evidence_digest_of"] == "type nvidia-gpu, report bytes 'report'"
    assert binding.evidence_digest("nvidia-gpu", b"report") == "sha256:" + vector["evidence_digest"]


@checks("cache")
def test_everything_derived_from_a_salt_is_as_published() -> None:
    vector = VECTORS["cache"]
    salt = cache.check_cache_salt(vector["cache_salt_utf8"])
    namespace = cache.namespace(salt, hexed(vector, "model_digest"))
    assert namespace.text() == vector["namespace_utf8"]
    aad = hexed(vector, "chunk_aad")
    chunk_key = cache.chunk_key(namespace, hexed(vector, "chunk_r"), aad).expose()
    assert chunk_key == hexed(vector, "k_chunk")
    chunk = AESGCM(chunk_key).encrypt(bytes(12), hexed(vector, "chunk_plaintext"), aad)
    assert chunk == hexed(vector, "chunk_ciphertext")
    assert cache.name_key(namespace).expose() == hexed(vector, "name_key")
    assert cache.affinity(salt, 7) == hexed(vector, "affinity_epoch_7")


def test_the_published_chunk_opens_under_no_other_aad() -> None:
    vector = VECTORS["cache"]
    with pytest.raises(InvalidTag):
        AESGCM(hexed(vector, "k_chunk")).decrypt(bytes(12), hexed(vector, "chunk_ciphertext"), b"other aad")


@checks("receipt")
def test_a_receipt_has_the_published_signature() -> None:
    vector = VECTORS["receipt"]
    key = Ed25519PrivateKey.from_private_bytes(hexed(vector, "private"))
    public, raw, signature = hexed(vector, "public"), vector["receipt_utf8"].encode(), hexed(vector, "signature")
    assert key.public_key().public_bytes_raw() == public
    assert receipt.sign(key, {"counter": 1}) == (raw, signature)
    assert receipt.verify(public, raw, signature) == {"counter": 1}


@pytest.mark.parametrize("case", cases("salts"))
@checks("salts")
def test_a_salt_is_accepted_or_refused_as_published(case: dict[str, Any]) -> None:
    if case["accepted"]:
        assert cache.check_cache_salt(case["salt"]) == case["salt"]
    else:
        with pytest.raises(WeakSalt):
            cache.check_cache_salt(case["salt"])


@pytest.mark.parametrize("case", cases("claims"))
@checks("claims")
def test_claims_are_accepted_or_refused_as_published(case: dict[str, Any]) -> None:
    raw = case["utf8"].encode() if "utf8" in case else hexed(case, "hex")
    if case["accepted"]:
        assert claims.parse(raw).encode() == raw
    else:
        with pytest.raises(MalformedClaims):
            claims.parse(raw)


def test_the_published_claims_list_the_published_key() -> None:
    parsed = claims.parse(VECTORS["claims"][0]["utf8"].encode())
    assert [key.identity() for key in parsed.keys] == [private(VECTORS["key"]).public]


@checks("simulated_evidence")
def test_simulated_evidence_commits_to_the_published_claims_and_root() -> None:
    vector = VECTORS["simulated_evidence"]
    report, report_data = hexed(vector, "report"), hexed(vector, "report_data")
    key = Ed25519PrivateKey.from_private_bytes(hexed(vector, "private"))
    public = key.public_key().public_bytes_raw()
    assert public == hexed(vector, "public")
    assert report_data == binding.report_data(
        hexed(VECTORS["merkle"][0], "root"), VECTORS["claims"][0]["utf8"].encode()
    )
    assert report == public + report_data + key.sign(b"strongroom/1 simulated" + report_data)
    Ed25519PublicKey.from_public_bytes(report[:32]).verify(report[96:], b"strongroom/1 simulated" + report[32:96])


def test_the_script_still_makes_the_members_that_were_added() -> None:
    made = runpy.run_path(str(FILE.with_name("generate.py")))
    added = json.loads(json.dumps(made["additions"](VECTORS)))
    assert set(added) == set(made["ADDED"]) == ADDED
    # HPKE is randomised, so of sealed requests only the meaning can be compared.
    sealed = {"request_two_envelopes", "requests_refused"}
    assert {name: added[name] for name in ADDED - sealed} == {name: VECTORS[name] for name in ADDED - sealed}
    meaning = [[(case["why"], case["code"]) for case in cases["requests_refused"]] for cases in (added, VECTORS)]
    assert meaning[0] == meaning[1]
    assert added["request_two_envelopes"]["keys"] == VECTORS["request_two_envelopes"]["keys"]


def test_every_case_says_something_of_its_own() -> None:
    for member in ("salts", "claims", "requests_refused", "responses_refused"):
        reasons = [case["why"] for case in VECTORS[member]]
        assert len(set(reasons)) == len(reasons)
        contents = [json.dumps({k: v for k, v in case.items() if k != "why"}) for case in VECTORS[member]]
        assert len(set(contents)) == len(contents)
    for member in ("salts", "claims"):
        assert {case["accepted"] for case in VECTORS[member]} == {True, False}
