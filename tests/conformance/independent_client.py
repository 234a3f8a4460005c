"""An independent Strongroom client, protocol version 1.

Written from the text of the protocol alone (docs/protocol.md has it), to test that it is enough to interoperate.
It shares no code with the project: protobuf codec, attestation checks and framing are its own; cryptography is the
library's.

    independent_client.py vectors protocol-v1.json
    independent_client.py chat localhost:50051 --model m --message hi --insecure-allow-simulated
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import rfc8785
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hpke
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SUITE = hpke.Suite(hpke.KEM.MLKEM768_X25519, hpke.KDF.HKDF_SHA256, hpke.AEAD.AES_256_GCM)
SUITE_NAME, SUITE_ID = "MLKEM768-X25519/HKDF-SHA256/AES-256-GCM", bytes.fromhex("647a00010002")
MLKEM_BYTES, PUBLIC_KEY_BYTES, KEY_ID_BYTES, NONCE_BYTES = 1184, 1216, 16, 32
MAX_ENVELOPES, MAX_NONCES, MAX_RECORD, MIN_PADDED = 8, 1024, 1 << 20, 1024
Message = dict[str, Any]
Frame = tuple[str, Any]  # "head" with {status, headers}, "body" with bytes or "end" with {receipt, signature}


class ProtocolError(Exception):
    """The peer, or the host between, broke the protocol; nothing that it sent may be used."""


# --- Messages (section 8): each message's fields in the order of their numbers, which start at 1 ---

SCHEMA: dict[str, dict[str, Any]] = {
    "AttestationRequest": {"nonce": bytes},
    "AttestationBundle": {
        "claims": bytes,
        "tee": "Evidence",
        "devices": ["Evidence"],
        "nonce_path": [bytes],
        "nonce_index": int,
        "nonce_count": int,
    },
    "Evidence": {"type": str, "report": bytes, "certificates": [bytes], "endorsements": ["Endorsement"]},
    "Endorsement": {"type": str, "data": bytes},
    "SealedRequest": {"envelopes": ["Envelope"], "ciphertext": bytes},
    "Envelope": {"key_id": bytes, "sealed": bytes},
    "SealedRecord": {"payload": bytes},
    "InferenceRequest": {
        "path": str,
        "headers": ["Header"],
        "body": bytes,
        "stream": "StreamProfile",
        "cache": "CacheProfile",
    },
    "Header": {"name": str, "value": str},
    "StreamProfile": {"padding": str, "tick_ms": int},
    "CacheProfile": {"reuse": int, "offload_cpu": int, "offload_disk": int},
    "ResponseRecord": {"frames": ["Frame"]},
    "Frame": {"head": ["Head"], "body": [bytes], "end": ["End"]},  # oneof: present also when empty
    "Head": {"status": int, "headers": ["Header"]},
    "End": {"receipt": bytes, "signature": bytes},
}


def varint(value: int) -> bytes:
    """Encode an unsigned integer."""
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def encode(kind: str, values: Message) -> bytes:
    """Encode a message; a singular field that is absent, empty or zero is left out."""
    out = b""
    for number, (name, shape) in enumerate(SCHEMA[kind].items(), 1):
        repeated = isinstance(shape, list)
        item_shape = shape[0] if repeated else shape
        for item in values.get(name, []) if repeated else [values.get(name)]:
            if item_shape is int:
                out += varint(number << 3) + varint(item) if item else b""
                continue
            data = encode(item_shape, item or {}) if isinstance(item_shape, str) else item or b""
            data = data.encode() if isinstance(data, str) else data
            if data or repeated:
                out += varint(number << 3 | 2) + varint(len(data)) + data
    return out


def wire_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value (int or bytes) of each field on the wire."""
    position = 0

    def take(size: int) -> bytes:
        nonlocal position
        start, position = position, position + size
        if position > len(data):
            raise ProtocolError("protobuf: truncated")
        return data[start:position]

    def number() -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ProtocolError("protobuf: varint too long")

    while position < len(data):
        tag = number()
        match tag & 7:
            case 0:
                yield tag >> 3, number()
            case 2:
                yield tag >> 3, take(number())
            case 1 | 5 as fixed:
                yield tag >> 3, take(8 if fixed == 1 else 4)
            case other:
                raise ProtocolError(f"protobuf: wire type {other}")


def decode(kind: str, data: bytes) -> Message:
    """Decode a message into all its fields. Unknown ones are skipped; a repeated singular one's last wins."""
    schema = list(SCHEMA[kind].items())
    values: Message = {name: [] if isinstance(shape, list) else None for name, shape in schema}
    for number, value in wire_fields(data):
        if not 1 <= number <= len(schema):
            continue
        name, shape = schema[number - 1]
        item_shape = shape[0] if isinstance(shape, list) else shape
        if isinstance(value, int) != (item_shape is int):
            raise ProtocolError(f"protobuf: {kind}.{name} has the wrong wire type")
        try:
            item = value.decode() if item_shape is str else value
        except UnicodeDecodeError as error:
            raise ProtocolError(f"protobuf: {kind}.{name} is not UTF-8") from error
        if isinstance(item_shape, str):
            item = decode(item_shape, value)
        if isinstance(shape, list):
            values[name].append(item)
        else:
            values[name] = item
    for name, shape in schema:
        if values[name] is None:
            values[name] = decode(shape, b"") if isinstance(shape, str) else shape()
    return values


# --- Primitives and keys (section 1) ---


def sha256(data: bytes) -> bytes:
    """H() of the page."""
    return hashlib.sha256(data).digest()


def derive(secret: bytes, info: bytes, *, salt: bytes | None = None, length: int = 32) -> bytes:
    """HKDF-SHA256; no salt is the empty salt."""
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def gcm_seal(key: bytes, number: int, plaintext: bytes, aad: bytes) -> bytes:
    """AES-256-GCM with the nonce u96(number)."""
    return AESGCM(key).encrypt(number.to_bytes(12, "big"), plaintext, aad)


def gcm_open(key: bytes, number: int, ciphertext: bytes, aad: bytes) -> bytes | None:
    """Inverse of gcm_seal; None when it does not open."""
    try:
        return AESGCM(key).decrypt(number.to_bytes(12, "big"), ciphertext, aad)
    except InvalidTag:
        return None


def b64url(data: bytes) -> str:
    """Unpadded base64url."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def b64url_decode(text: str) -> bytes:
    """Strict inverse of b64url."""
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if b64url(data) != text:
        raise ValueError("not canonical unpadded base64url")
    return data


def key_id(public_key: bytes) -> bytes:
    """The id of a key of the mandatory suite."""
    return sha256(b"strongroom/1 key" + SUITE_ID + public_key)[:KEY_ID_BYTES]


def private_key(mlkem_seed: bytes, x25519: bytes) -> tuple[hpke.MLKEM768X25519PrivateKey, bytes]:
    """The composite private key and its public key's encoding."""
    key, other = MLKEM768PrivateKey.from_seed_bytes(mlkem_seed), X25519PrivateKey.from_private_bytes(x25519)
    public = key.public_key().public_bytes_raw() + other.public_key().public_bytes_raw()
    return hpke.MLKEM768X25519PrivateKey(key, other), public


# --- Request (section 3) ---


def padme(length: int) -> int:
    """The size, at least 1,024, that the Padme scheme gives length bytes, the length prefix counted."""
    length = max(length, MIN_PADDED)
    exponent = length.bit_length() - 1
    mask = (1 << exponent - exponent.bit_length()) - 1
    return length + mask & ~mask


def frame(data: bytes, size: int) -> bytes:
    """u32(len(data)) || data || zeros, size bytes in all."""
    return (len(data).to_bytes(4, "big") + data).ljust(size, b"\0")


def unframe(padded: bytes) -> bytes:
    """Inverse of frame; padding that is not zero is refused."""
    end = 4 + int.from_bytes(padded[:4], "big")
    if len(padded) < end or padded.count(0, end) != len(padded) - end:
        raise ProtocolError("padding: bad length or not zero")
    return padded[4:end]


def envelope_info(identifier: bytes) -> bytes:
    """HPKE's info."""
    return b"strongroom/1 envelope" + identifier


def request_key(secret: bytes) -> bytes:
    """k_req."""
    return derive(secret, b"strongroom/1 request")


def replay_id(secret: bytes) -> bytes:
    """What a worker remembers of a request."""
    return derive(secret, b"strongroom/1 replay", length=16)


@dataclass
class SealedRequest:
    """A request on the wire, and with it the secret that opens its response."""

    secret: bytes
    envelopes: dict[bytes, bytes]  # key id to what is sealed to it
    ciphertext: bytes = b""

    @property
    def aad(self) -> bytes:
        """All envelopes, which the ciphertext is bound to."""
        parts = (name + len(data).to_bytes(2, "big") + data for name, data in self.envelopes.items())
        return b"strongroom/1 request" + bytes([len(self.envelopes)]) + b"".join(parts)

    @property
    def transcript(self) -> bytes:
        """th."""
        return sha256(self.aad + self.ciphertext)

    def encode(self) -> bytes:
        """The protobuf encoding."""
        envelopes = [{"key_id": identifier, "sealed": data} for identifier, data in self.envelopes.items()]
        return encode("SealedRequest", {"envelopes": envelopes, "ciphertext": self.ciphertext})


def seal_request(public_keys: Sequence[bytes], request: bytes) -> SealedRequest:
    """Seal an encoded InferenceRequest, under a fresh secret, to each of 1 to 8 workers' keys."""
    if not 1 <= len(set(public_keys)) == len(public_keys) <= MAX_ENVELOPES:
        raise ProtocolError("seal: 1 to 8 distinct keys")
    sealed = SealedRequest(os.urandom(32), {})
    for public in public_keys:
        identifier = key_id(public)
        try:
            mlkem = MLKEM768PublicKey.from_public_bytes(public[:MLKEM_BYTES])
            key = hpke.MLKEM768X25519PublicKey(mlkem, X25519PublicKey.from_public_bytes(public[MLKEM_BYTES:]))
            sealed.envelopes[identifier] = SUITE.encrypt(sealed.secret, key, envelope_info(identifier))
        except ValueError as error:
            raise ProtocolError("seal: malformed public key") from error
    padded = frame(request, padme(4 + len(request)))
    sealed.ciphertext = gcm_seal(request_key(sealed.secret), 0, padded, sealed.aad)
    return sealed


def open_request(message: bytes, key: hpke.MLKEM768X25519PrivateKey, identifier: bytes) -> tuple[SealedRequest, bytes]:
    """A worker's side: open a SealedRequest with one private key."""
    fields = decode("SealedRequest", message)
    envelopes = {item["key_id"]: item["sealed"] for item in fields["envelopes"]}
    distinct = len(envelopes) == len(fields["envelopes"]) <= MAX_ENVELOPES
    if not distinct or any(len(item) != KEY_ID_BYTES for item in envelopes) or identifier not in envelopes:
        raise ProtocolError("request: malformed, or unknown key")
    try:
        secret = SUITE.decrypt(envelopes[identifier], key, envelope_info(identifier))
    except InvalidTag as error:
        raise ProtocolError("request: does not open") from error
    request = SealedRequest(secret, envelopes, fields["ciphertext"])
    padded = gcm_open(request_key(secret), 0, request.ciphertext, request.aad)
    if padded is None:
        raise ProtocolError("request: does not open")
    return request, unframe(padded)


# --- Response (section 4) ---


def response_key(request: SealedRequest, identifier: bytes, nonce: bytes) -> bytes:
    """k_res."""
    return derive(request.secret, b"strongroom/1 response" + identifier + request.transcript, salt=nonce)


def seal_record(key: bytes, index: int, plaintext: bytes, *, last: bool) -> bytes:
    """Seal one padded record."""
    return gcm_seal(key, index, plaintext, bytes([last]))


def decode_frames(data: bytes) -> list[Frame]:
    """Decode ResponseRecord; a frame that is not exactly one of the three kinds is refused."""
    frames = []
    for fields in decode("ResponseRecord", data)["frames"]:
        members = [(kind, value) for kind, values in fields.items() for value in values]
        if len(members) != 1:
            raise ProtocolError("response: frame of no kind, or of two")
        frames += members
    return frames


def encode_frames(frames: Iterable[Frame]) -> bytes:
    """Encode ResponseRecord."""
    return encode("ResponseRecord", {"frames": [{kind: [value]} for kind, value in frames]})


class ResponseOpener:
    """Opens the payloads of one response in order: feed each, then finish."""

    def __init__(self, request: SealedRequest) -> None:
        self._request, self._key, self._index = request, b"", 0
        self._started = self.complete = False

    def feed(self, payload: bytes) -> list[Frame]:
        """The frames of the next payload."""
        if self.complete:
            raise ProtocolError("response: data after the last record")
        if not self._key:
            identifier, nonce = payload[:KEY_ID_BYTES], payload[KEY_ID_BYTES:][:NONCE_BYTES]
            payload = payload[KEY_ID_BYTES + NONCE_BYTES :]
            if len(nonce) != NONCE_BYTES:
                raise ProtocolError("response: first payload too short")
            if identifier not in self._request.envelopes:
                raise ProtocolError("response: from a key that the request was not sealed to")
            self._key = response_key(self._request, identifier, nonce)
        frames = decode_frames(unframe(self._open(payload)))
        for position, (kind, _) in enumerate(frames, 1):
            if (kind == "head") == self._started:
                raise ProtocolError("response: head missing, late or repeated")
            if kind == "end" and not (self.complete and position == len(frames)):
                raise ProtocolError("response: end is not the last frame")
            self._started = True
        if self.complete and not (frames and frames[-1][0] == "end"):
            raise ProtocolError("response: last record without end")
        return frames

    def _open(self, record: bytes) -> bytes:
        if len(record) > MAX_RECORD + 16:
            raise ProtocolError("response: record too large")
        plaintext = gcm_open(self._key, self._index, record, b"\0")
        if plaintext is None:
            plaintext, self.complete = gcm_open(self._key, self._index, record, b"\1"), True
        if plaintext is None:
            raise ProtocolError("response: record does not open")
        self._index += 1
        return plaintext

    def finish(self) -> None:
        """Call at the end of the stream: only now is the response known to be whole."""
        if not self.complete:
            raise ProtocolError("response: truncated" if self._key else "response: no record")


# --- Attestation (section 2) ---


def nonce_leaf(nonce: bytes) -> bytes:
    """The leaf hash of a nonce."""
    return sha256(b"\0" + len(nonce).to_bytes(2, "big") + nonce)


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The RFC 6962 tree head of leaf hashes."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return sha256(b"\1" + merkle_root(leaves[:split]) + merkle_root(leaves[split:]))


def path_root(leaf: bytes, path: Sequence[bytes], index: int, count: int) -> bytes:
    """The root that an RFC 6962 audit path leads to."""
    if not 0 <= index < count <= MAX_NONCES or any(len(node) != 32 for node in path):
        raise ProtocolError("nonce path: malformed")
    root, last = leaf, count - 1
    for node in path:
        if not last:
            raise ProtocolError("nonce path: too long")
        if index & 1 or index == last:
            root = sha256(b"\1" + node + root)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            root = sha256(b"\1" + root + node)
        index, last = index >> 1, last >> 1
    if last:
        raise ProtocolError("nonce path: too short")
    return root


def report_data(root: bytes, claims: bytes) -> bytes:
    """What the TEE signs."""
    return hashlib.sha512(b"strongroom/1 report" + root + hashlib.sha512(claims).digest()).digest()


def device_nonce(root: bytes, key_ids: Iterable[bytes]) -> bytes:
    """What each device signs."""
    return sha256(b"strongroom/1 device" + root + b"".join(key_ids))


def evidence_digest(kind: str, report: bytes) -> str:
    """How claims name a device's evidence."""
    return "sha256:" + sha256(len(kind.encode()).to_bytes(2, "big") + kind.encode() + report).hex()


def parse_canonical(data: bytes) -> Message:
    """Parse an RFC 8785 object; duplicate members and any other spelling are refused."""

    def members(pairs: list[tuple[str, Any]]) -> Message:
        if len(dict(pairs)) != len(pairs):
            raise ValueError("duplicate member")
        return dict(pairs)

    try:
        value = json.loads(data.decode(), object_pairs_hook=members)
        if not isinstance(value, dict) or rfc8785.dumps(value) != data:
            raise ValueError("not an RFC 8785 object")
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"JSON: {error}") from error
    return value


CLAIMS_SHAPE: dict[str, Any] = {
    "version": int,
    "boot_id": str,
    "keys": [{"key_id": str, "suite": str, "public_key": str, "not_before": int, "not_after": int}],
    "signing_key": {"algorithm": str, "public_key": str},
    "model": {"name": str, "digest": str, "signature": (None, {"method": str, "identity": str})},
    "engine": {"name": str, "version": str, "arguments": object, "digest": str},
    "cache": {
        "salt": str,
        "hash": str,
        "tiers": [{"medium": str, "bytes": int, "encryption": (None, str), "key": (None, str)}],
    },
    "stream": {"padding": str, "tick_ms": int},
    "devices": [{"type": str, "index": int, "architecture": str, "evidence": str}],
    "tee": {"type": str},
    "launcher": {"version": str, "config": str},
    "info": dict,
}


def shape_failures(value: object, shape: object, at: str) -> list[str]:
    """Where value departs from shape: a type, None, a tuple of choices, a list's element, object members."""
    match shape:
        case dict() if isinstance(value, dict) and value.keys() == shape.keys():
            return [text for k in shape for text in shape_failures(value[k], shape[k], f"{at}.{k}")]
        case [element] if isinstance(shape, list) and isinstance(value, list):
            return [text for item in value for text in shape_failures(item, element, at)]
        case tuple() if any(not shape_failures(value, choice, at) for choice in shape):
            return []
        case type() if isinstance(value, shape) and not (shape is int and isinstance(value, bool)):
            return []
        case None if value is None:
            return []
    return [f"{at}: wrong type or members"]


def suite_keys(claims: Message) -> list[bytes]:
    """Public keys of the mandatory suite, current first; ValueError if one is bad or not as its id says."""
    entries = [entry for entry in claims["keys"] if entry["suite"] == SUITE_NAME]
    keys = [b64url_decode(entry["public_key"]) for entry in entries]
    if not 1 <= len(set(keys)) == len(keys) or any(len(key) != PUBLIC_KEY_BYTES for key in keys):
        raise ValueError("keys: none of the mandatory suite, one twice, or one malformed")
    if [key_id(key).hex() for key in keys] != [entry["key_id"] for entry in entries]:
        raise ValueError("keys: key_id is not the id of public_key")
    return keys


def simulated_report_data(report: bytes) -> bytes:
    """The report data in evidence of type simulated, which anybody can make."""
    key, data, signature = report[:32], report[32:96], report[96:]
    Ed25519PublicKey.from_public_bytes(key).verify(signature, b"strongroom/1 simulated" + data)
    return data


def bundle_failures(bundle: Message, nonce: bytes, *, allow_simulated: bool) -> list[str]:
    """Every reason not to trust an AttestationBundle; this client cannot appraise real hardware."""
    claims, tee, devices = parse_canonical(bundle["claims"]), bundle["tee"], bundle["devices"]
    if failures := shape_failures(claims, CLAIMS_SHAPE, "claims"):
        return failures
    root = path_root(nonce_leaf(nonce), bundle["nonce_path"], bundle["nonce_index"], bundle["nonce_count"])
    failures = [
        f"evidence of type {evidence['type']!r} is not accepted"
        for evidence in (tee, *devices)
        if evidence["type"] != "simulated" or not allow_simulated
    ]
    try:
        data = simulated_report_data(tee["report"])
        if not hmac.compare_digest(data, report_data(root, bundle["claims"])):
            failures.append("tee: report data does not bind nonce and claims")
    except (ValueError, InvalidSignature):
        failures.append("tee: no valid signature")
    try:
        suite_keys(claims)
        b64url_decode(claims["signing_key"]["public_key"])
        challenge = device_nonce(root, [bytes.fromhex(entry["key_id"]) for entry in claims["keys"]])
        if not all(challenge in device["report"] for device in devices):
            failures.append("devices: a report without device_nonce")
    except ValueError as error:
        failures.append(f"claims: {error}")
    claimed = Counter((device["type"], device["evidence"]) for device in claims["devices"])
    found = Counter((device["type"], evidence_digest(device["type"], device["report"])) for device in devices)
    if claimed != found or len(found) != len(devices):
        failures.append("devices: not one to one with claims")
    if (claims["version"], claims["cache"]["salt"], claims["cache"]["hash"]) != (1, "required", "sha256"):
        failures.append("claims: version, cache.salt or cache.hash")
    if claims["tee"]["type"] != tee["type"]:
        failures.append("tee: not of the type in claims")
    return failures


# --- Cache and receipts (section 6) ---


def namespace(cache_salt: str, model_digest: bytes) -> str:
    """The namespace that a salt names for a model."""
    return "sr1." + b64url(derive(cache_salt.encode(), b"strongroom/1 namespace" + model_digest))


def affinity(cache_salt: str, epoch: int) -> bytes:
    """The tag that leads to a warm worker."""
    key = derive(cache_salt.encode(), b"strongroom/1 affinity")
    return hmac.digest(key, epoch.to_bytes(8, "big"), "sha256")


def chunk_key(space: str, r: bytes, aad: bytes) -> bytes:
    """k_chunk."""
    return derive(space.encode(), b"strongroom/1 chunk" + sha256(aad), salt=r)


def name_key(space: str) -> bytes:
    """The key of file names."""
    return derive(space.encode(), b"strongroom/1 name")


def verify_receipt(public_key: bytes, receipt: bytes, signature: bytes) -> Message:
    """A receipt's members, once its signature holds."""
    signed = b"strongroom/1 receipt" + sha256(public_key) + receipt
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, signed)
    except (ValueError, InvalidSignature) as error:
        raise ProtocolError("receipt: no valid signature") from error
    return parse_canonical(receipt)


# --- gRPC ---


def open_channel(target: str) -> grpc.Channel:
    """A channel without transport security, which the protocol does without, and without retries."""
    return grpc.insecure_channel(target, options=[("grpc.enable_retries", 0)])


def attest(channel: grpc.Channel, *, allow_simulated: bool = False, timeout: float = 60) -> Message:
    """Fetch a bundle for a fresh nonce and return its claims if every check holds."""
    nonce = os.urandom(32)
    call: Any = channel.unary_unary("/strongroom.v1.Attestation/GetAttestation")
    answer = call(encode("AttestationRequest", {"nonce": nonce}), timeout=timeout)
    bundle = decode("AttestationBundle", answer)
    if failures := bundle_failures(bundle, nonce, allow_simulated=allow_simulated):
        raise ProtocolError("attestation: " + "; ".join(failures))
    return parse_canonical(bundle["claims"])


def infer(channel: grpc.Channel, request: SealedRequest, timeout: float = 300) -> Iterator[Frame]:
    """Send a request; yields head, bodies and end. The answer is whole only once the iterator has ended."""
    method: Any = channel.unary_stream("/strongroom.v1.Inference/Infer")
    call = method(request.encode(), timeout=timeout)
    opener = ResponseOpener(request)
    try:
        for record in call:
            yield from opener.feed(decode("SealedRecord", record)["payload"])
    except grpc.RpcError:
        if not opener.complete:  # After the last record the status adds nothing: it is not authenticated.
            raise
    finally:
        call.cancel()
    opener.finish()


def chat(options: argparse.Namespace) -> int:
    """Attest, ask and print the answer as one JSON object."""
    salt = options.salt_file.read_text().strip() if options.salt_file else b64url(os.urandom(32))
    messages = [{"role": "user", "content": options.message}]
    body = {"model": options.model, "messages": messages, "stream": options.stream, "cache_salt": salt}
    if options.max_tokens is not None:
        body["max_tokens"] = options.max_tokens
    request = {
        "path": "/v1/chat/completions",
        "headers": [{"name": "content-type", "value": "application/json"}],
        "body": json.dumps(body).encode(),
        "stream": {"padding": options.padding, "tick_ms": options.tick_ms},
        "cache": {"reuse": options.salt_file is not None},
    }
    status, answer = 0, b""
    with open_channel(options.target) as channel:
        claims = attest(channel, allow_simulated=options.insecure_allow_simulated)
        sealed = seal_request(suite_keys(claims)[:1], encode("InferenceRequest", request))
        for kind, value in infer(channel, sealed):
            if kind == "head":
                status = value["status"]
            elif kind == "body":
                answer += value
            elif value["receipt"]:
                signer = b64url_decode(claims["signing_key"]["public_key"])
                receipt = verify_receipt(signer, value["receipt"], value["signature"])
                if receipt.get("boot_id") != claims["boot_id"]:
                    raise ProtocolError("receipt: from another boot")
    text = answer.hex() if options.hex_out else answer.decode(errors="replace")
    print(json.dumps({"status": status, "body": text}))
    return 0 if status == 200 else 1


# --- Known answers ---


def refuses(action: Callable[..., object], *arguments: object) -> bool:
    """Whether the call ends in ProtocolError."""
    try:
        action(*arguments)
    except ProtocolError:
        return True
    return False


def open_response(request: SealedRequest, payloads: Iterable[bytes]) -> list[Frame]:
    """Open a whole response."""
    opener = ResponseOpener(request)
    frames = [item for payload in payloads for item in opener.feed(payload)]
    opener.finish()
    return frames


def vector_key(vectors: Message) -> tuple[hpke.MLKEM768X25519PrivateKey, bytes]:
    """The private key of the vectors and the key's id."""
    seeds = (bytes.fromhex(vectors["key"][name]) for name in ("mlkem768_seed", "x25519_private"))
    private, public = private_key(*seeds)
    return private, key_id(public)


def request_checks(vectors: Message) -> Iterator[tuple[str, bool]]:
    """Sections 1 and 3."""
    key, request = vectors["key"], vectors["request"]
    private, public = private_key(bytes.fromhex(key["mlkem768_seed"]), bytes.fromhex(key["x25519_private"]))
    secret = bytes.fromhex(request["request_secret"])
    yield "key: public key", public.hex() == key["public_key"]
    yield "key: suite and id", (SUITE_ID.hex(), key_id(public).hex()) == (key["suite_id"], key["key_id"])
    opened, plain = open_request(bytes.fromhex(request["message"]), private, key_id(public))
    yield "request: envelope opens", opened.secret == secret
    yield "request: envelope", opened.envelopes == {key_id(public): bytes.fromhex(request["sealed"])}
    yield "request: plaintext", plain.hex() == request["inference_request"]
    yield "request: encoding", encode("InferenceRequest", decode("InferenceRequest", plain)) == plain
    yield "request: message encoding", opened.encode().hex() == request["message"]
    yield "request: aad", sha256(opened.aad).hex() == request["aad_sha256"]
    yield "request: k_req", request_key(secret).hex() == request["k_req"]
    padded = frame(plain, padme(4 + len(plain)))
    yield "request: padded length", len(padded) == request["padded_length"]
    ciphertext = gcm_seal(request_key(secret), 0, padded, opened.aad)
    yield "request: ciphertext", ciphertext.hex() == request["ciphertext"] == opened.ciphertext.hex()
    yield "request: th", opened.transcript.hex() == request["th"]
    yield "request: replay_id", replay_id(secret).hex() == request["replay_id"]
    for case in vectors["padding"]:
        yield f"padding: {case['length']}", padme(4 + case["length"]) == case["padded"]
    again, second = private_key(os.urandom(64), os.urandom(32))
    two = seal_request([public, second], plain)
    yield "request: own sealing", open_request(two.encode(), private, key_id(public)) == (two, plain)
    yield "request: own sealing, other key", open_request(two.encode(), again, key_id(second)) == (two, plain)


def response_checks(vectors: Message) -> Iterator[tuple[str, bool]]:
    """Section 4, the client's errors included."""
    case, (private, identifier) = vectors["response"], vector_key(vectors)
    request, _ = open_request(bytes.fromhex(vectors["request"]["message"]), private, identifier)
    nonce = bytes.fromhex(case["response_nonce"])
    key, prefix = response_key(request, identifier, nonce), identifier + nonce
    texts, payloads = ([bytes.fromhex(item) for item in case[name]] for name in ("plaintexts", "payloads"))
    yield "response: k_res", key.hex() == case["k_res"]
    first, last = seal_record(key, 0, texts[0], last=False), seal_record(key, 1, texts[1], last=True)
    yield "response: records", [prefix + first, last] == payloads
    frames = [decode_frames(unframe(text)) for text in texts]
    yield "response: frames", open_response(request, payloads) == frames[0] + frames[1]
    unit = int(case["padding"].removeprefix("bucket-"))
    packed = [frame(data, -(-(4 + len(data)) // unit) * unit) for data in map(encode_frames, frames)]
    yield "response: encoding and bucket padding", packed == texts
    other = SealedRequest(request.secret, {bytes(16): b""}, request.ciphertext)
    yield "response refused: key not sealed to", refuses(open_response, other, payloads)
    yield "response refused: no record", refuses(open_response, request, [])
    yield "response refused: data after the last record", refuses(open_response, request, [*payloads, b""])
    no_end = prefix + seal_record(key, 0, texts[0], last=True)
    yield "response refused: last record without end", refuses(open_response, request, [no_end])
    early = seal_record(key, 1, texts[1], last=False)
    yield (
        "response refused: end before the last record",
        refuses(open_response, request, [payloads[0], early]),
    )
    yield "response refused: no last record", refuses(open_response, request, payloads[:1])
    yield "response refused: short record", refuses(open_response, request, [payloads[0], payloads[1][:-1]])


def attestation_checks(vectors: Message) -> Iterator[tuple[str, bool]]:
    """Section 2."""
    for case in vectors["merkle"]:
        leaves = [nonce_leaf(bytes.fromhex(nonce)) for nonce in case["nonces"]]
        root, count = bytes.fromhex(case["root"]), len(leaves)
        paths = [[bytes.fromhex(node) for node in path] for path in case["paths"]]
        yield f"merkle: root of {count}", merkle_root(leaves) == root
        found = [path_root(leaves[n], paths[n], n, count) for n in range(count)]
        yield f"merkle: paths of {count}", found == [root] * count
    case, key = vectors["attestation"], bytes.fromhex(vectors["key"]["key_id"])
    root, claims = bytes.fromhex(case["root"]), case["claims_utf8"].encode()
    yield "attestation: canonical claims", parse_canonical(claims) == {"version": 1}
    for bad in (b'{"a":1,"a":1}', b'{"a": 1}', b'{"b":1,"a":1}', b'{"a":1.0}', b'{"a":NaN}', b'{"a":"\xff"}'):
        yield f"attestation: refuses {bad!r}", refuses(parse_canonical, bad)
    yield "attestation: report_data", report_data(root, claims).hex() == case["report_data"]
    yield "attestation: device_nonce", device_nonce(root, [key]).hex() == case["device_nonce_one_key"]
    digest = evidence_digest("nvidia-gpu", b"report")
    yield "attestation: evidence digest", digest == "sha256:" + case["evidence_digest"]


def cache_checks(vectors: Message) -> Iterator[tuple[str, bool]]:
    """Section 6."""
    case = vectors["cache"]
    salt, space, aad = case["cache_salt_utf8"], case["namespace_utf8"], bytes.fromhex(case["chunk_aad"])
    yield "cache: namespace", namespace(salt, bytes.fromhex(case["model_digest"])) == space
    key = chunk_key(space, bytes.fromhex(case["chunk_r"]), aad)
    yield "cache: k_chunk", key.hex() == case["k_chunk"]
    chunk = gcm_seal(key, 0, bytes.fromhex(case["chunk_plaintext"]), aad)
    yield "cache: chunk", chunk.hex() == case["chunk_ciphertext"]
    yield "cache: name key", name_key(space).hex() == case["name_key"]
    yield "cache: affinity", affinity(salt, 7).hex() == case["affinity_epoch_7"]
    case = vectors["receipt"]
    signer = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(case["private"]))
    public, receipt = signer.public_key().public_bytes_raw(), case["receipt_utf8"].encode()
    signature = bytes.fromhex(case["signature"])
    yield "receipt: public key", public.hex() == case["public"]
    yield "receipt: signature", signer.sign(b"strongroom/1 receipt" + sha256(public) + receipt) == signature
    yield "receipt: verifies", verify_receipt(public, receipt, signature) == json.loads(receipt)
    yield "receipt: refuses another", refuses(verify_receipt, public, b'{"counter":2}', signature)


def check_vectors(options: argparse.Namespace) -> int:
    """Print a line for each check; 1 when any fails."""
    vectors, failed = json.loads(options.file.read_text()), False
    for checks in (request_checks, response_checks, attestation_checks, cache_checks):
        for name, good in checks(vectors):
            failed |= not good
            print(name, "ok" if good else "FAIL")
    return int(failed)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("vectors", help="check the known answers")
    command.add_argument("file", metavar="FILE", type=Path)
    command.set_defaults(run=check_vectors)
    command = commands.add_parser("chat", help="ask a worker")
    command.add_argument("target", metavar="HOST:PORT")
    command.add_argument("--model", required=True)
    command.add_argument("--message", required=True)
    command.add_argument("--salt-file", type=Path, help="cache salt to reuse (default: a one-off salt)")
    command.add_argument("--stream", action="store_true")
    command.add_argument("--max-tokens", type=int)
    command.add_argument("--padding", default="", help="none, bucket-N or constant-N")
    command.add_argument("--tick-ms", type=int, default=0)
    command.add_argument("--insecure-allow-simulated", action="store_true", help="accept evidence that proves nothing")
    command.add_argument("--hex-out", action="store_true", help="print the body in hex")
    command.set_defaults(run=chat)
    options = parser.parse_args()
    try:
        return int(options.run(options))
    except ProtocolError as error:
        print(f"refused: {error}", file=sys.stderr)
    except grpc.RpcError as error:  # Not authenticated, nor is the trailer.
        trailers: Any = error.trailing_metadata() or ()
        reason = dict(trailers).get("strongroom-error", error.details())
        print(f"{error.code().name}: {reason}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
