"""Make the members that this project added to `protocol-v1.json`; the others are kept as they are.

Run `python tests/vectors/generate.py`. It shares no code with `strongroom`: it computes everything from
docs/protocol.md with `cryptography`, and writes protobuf and canonical JSON by hand, so that the tests which read the
file compare two implementations. Everything that can be seeded is: secrets, nonces, keys and bodies come from SHAKE-256
of their names. HPKE draws its randomness inside the library, so a second run gives other envelopes and with them other
messages, `th` and replies; compare the meaning of two runs, not their bytes.
"""

import base64
import copy
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey, MLKEM768PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, MLKEM768X25519PublicKey, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

FILE = pathlib.Path(__file__).with_name("protocol-v1.json")
ADDED = (
    "salts",
    "claims",
    "request_two_envelopes",
    "requests_refused",
    "response_constant",
    "responses_refused",
    "simulated_evidence",
)
SUITE = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
SUITE_NAME = "MLKEM768-X25519/HKDF-SHA256/AES-256-GCM"
SUITE_ID = bytes.fromhex("647a00010002")

Json = dict[str, Any]


def seeded(name: str, length: int) -> bytes:
    """Bytes that are the same on every run."""
    return hashlib.shake_256(b"strongroom protocol-v1 vectors: " + name.encode()).digest(length)


def hkdf(key: bytes, info: bytes, length: int = 32, salt: bytes | None = None) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(key)


def b64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


# Protobuf, as much of it as the messages need.


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def field(number: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def integer(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def header(name: str, value: str) -> bytes:
    return field(2, field(1, name) + field(2, value))


# Keys and requests, sections 1 and 3.


def private_key(name: str) -> Json:
    seed, scalar = seeded(name + " mlkem", 64), seeded(name + " x25519", 32)
    public = (
        MLKEM768PrivateKey.from_seed_bytes(seed).public_key().public_bytes_raw()
        + X25519PrivateKey.from_private_bytes(scalar).public_key().public_bytes_raw()
    )
    return {
        "mlkem768_seed": seed.hex(),
        "x25519_private": scalar.hex(),
        "public_key": public.hex(),
        "key_id": hashlib.sha256(b"strongroom/1 key" + SUITE_ID + public).digest()[:16].hex(),
    }


def envelope(key: Json, secret: bytes) -> tuple[bytes, bytes]:
    public, identifier = bytes.fromhex(key["public_key"]), bytes.fromhex(key["key_id"])
    recipient = MLKEM768X25519PublicKey(
        MLKEM768PublicKey.from_public_bytes(public[:1184]), X25519PublicKey.from_public_bytes(public[1184:])
    )
    return identifier, SUITE.encrypt(secret, recipient, info=b"strongroom/1 envelope" + identifier)


def pad(content: bytes, size: int) -> bytes:
    return (len(content).to_bytes(4, "big") + content).ljust(size, b"\0")


def serialise(envelopes: Iterable[tuple[bytes, bytes]], ciphertext: bytes) -> bytes:
    return b"".join(field(1, field(1, key) + field(2, sealed)) for key, sealed in envelopes) + field(2, ciphertext)


def seal(envelopes: Sequence[tuple[bytes, bytes]], secret: bytes, plaintext: bytes) -> Json:
    """Everything about a sealed request; `plaintext` is padded already."""
    aad = b"strongroom/1 request" + bytes([len(envelopes)])
    aad += b"".join(key + len(sealed).to_bytes(2, "big") + sealed for key, sealed in envelopes)
    k_req = hkdf(secret, b"strongroom/1 request")
    ciphertext = AESGCM(k_req).encrypt(bytes(12), plaintext, aad)
    return {
        "aad_sha256": hashlib.sha256(aad).hexdigest(),
        "k_req": k_req.hex(),
        "th": hashlib.sha256(aad + ciphertext).hexdigest(),
        "replay_id": hkdf(secret, b"strongroom/1 replay", 16).hex(),
        "message": serialise(envelopes, ciphertext).hex(),
    }


INFERENCE_REQUEST = (
    field(1, "/v1/chat/completions")
    + header("content-type", "application/json")
    + field(3, '{"model":"m","messages":[{"role":"user","content":"two envelopes"}]}')
    + field(4, field(1, "constant-512") + integer(2, 20))
    + field(5, integer(1, 1))
)


def request_two_envelopes() -> Json:
    keys = [private_key("first worker"), private_key("second worker")]
    secret = seeded("request of two envelopes", 32)
    envelopes = [envelope(key, secret) for key in keys]
    return {
        "keys": keys,
        "request_secret": secret.hex(),
        "inference_request": INFERENCE_REQUEST.hex(),
        "padded_length": 1024,
        **seal(envelopes, secret, pad(INFERENCE_REQUEST, 1024)),
    }


def flipped(data: bytes, position: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def requests_refused(base: Json, two: Json) -> list[Json]:
    """By a worker that holds `key` and the first of `request_two_envelopes.keys`."""
    own, next_key, other = base["key"], *two["keys"]
    message = bytes.fromhex(base["request"]["message"])
    sealed = bytes.fromhex(base["request"]["sealed"])
    ciphertext = bytes.fromhex(base["request"]["ciphertext"])
    own_id = bytes.fromhex(own["key_id"])
    secret = seeded("refused requests", 32)
    good = pad(INFERENCE_REQUEST, 1024)
    cases: list[Json] = []

    def case(why: str, code: str, raw: bytes, **more: Any) -> None:
        cases.append({"why": why, "code": code, **more, "message": raw.hex()})

    def made(keys: Sequence[Json], plaintext: bytes = good, key: bytes = secret) -> bytes:
        return bytes.fromhex(seal([envelope(k, key) for k in keys], key, plaintext)["message"])

    place = message.index(sealed)
    case("nothing at all", "malformed", b"")
    case("truncated by one byte", "malformed", message[:-1])
    case("truncated in the envelope", "malformed", message[:600])
    case("no ciphertext", "malformed", serialise([(own_id, sealed)], b""))
    case("flipped bit in the ciphertext", "malformed", flipped(message, message.index(ciphertext) + 100))
    case("flipped bit in the tag of the ciphertext", "malformed", flipped(message, len(message) - 1))
    case("flipped bit in the envelope, ML-KEM part", "malformed", flipped(message, place + 3))
    case("flipped bit in the envelope, X25519 part", "malformed", flipped(message, place + 1088 + 3))
    case("flipped bit in the envelope, AEAD part", "malformed", flipped(message, place + len(sealed) - 1))
    case("flipped bit in the key id", "unknown-key", flipped(message, message.index(own_id)))
    case("unknown key", "unknown-key", made([other]))
    case("retired key", "unknown-key", made([other]), retired=[other["key_id"]])
    case("no envelope", "malformed", field(2, ciphertext))
    case("nine envelopes", "malformed", made([own, *(private_key(f"one of nine, {i}") for i in range(8))]))
    case("the same envelope twice", "malformed", serialise([(own_id, sealed)] * 2, ciphertext))
    case("two envelopes to one worker", "malformed", made([own, next_key]))
    case(
        "two envelopes to one worker, one by a retired key",
        "malformed",
        bytes.fromhex(two["message"]),
        retired=[other["key_id"]],
    )
    pair = [envelope(other, secret), envelope(own, secret)]
    pair_ciphertext = bytes.fromhex(seal(pair, secret, good)["message"])[-len(good) - 16 :]
    case("two good envelopes, swapped after sealing", "malformed", serialise(reversed(pair), pair_ciphertext))
    case(
        "an envelope added after sealing",
        "malformed",
        serialise([(own_id, sealed), envelope(other, secret)], ciphertext),
    )
    case("a key id of 15 bytes", "malformed", serialise([(own_id[:15], sealed)], ciphertext))
    case("a request secret of 31 bytes", "malformed", made([own], key=secret[:31]))
    case("non-zero padding", "malformed", made([own], good[:-1] + b"\1"))
    case("padded to 1088 bytes where 1024 is the size", "malformed", made([own], pad(INFERENCE_REQUEST, 1088)))
    case("not padded to the least size", "malformed", made([own], pad(INFERENCE_REQUEST, 512)))
    case("a length prefix beyond the plaintext", "malformed", made([own], (1021).to_bytes(4, "big") + good[4:]))
    case("the content is not an InferenceRequest", "malformed", made([own], pad(b"\x0a\xff", 1024)))
    return cases


# Responses, section 4, all of them to `request`.


class Response:
    """Seals records for the request of the file."""

    def __init__(self, base: Json, nonce: bytes) -> None:
        self.key_id = bytes.fromhex(base["key"]["key_id"])
        self.nonce = nonce
        secret, th = bytes.fromhex(base["request"]["request_secret"]), bytes.fromhex(base["request"]["th"])
        self.k_res = hkdf(secret, b"strongroom/1 response" + self.key_id + th, salt=nonce)

    def record(self, index: int, plaintext: bytes, last: bool = False) -> bytes:
        preamble = b"" if index else self.key_id + self.nonce
        aad = b"\1" if last else b"\0"
        return preamble + AESGCM(self.k_res).encrypt(index.to_bytes(12, "big"), plaintext, aad)

    def payloads(self, *records: bytes, size: int = 64, last: bool = True) -> list[bytes]:
        """`records` are serialised `ResponseRecord`s; the last is sealed as such unless told otherwise."""
        final = len(records) - 1
        return [self.record(i, pad(r, size), last and i == final) for i, r in enumerate(records)]


HEAD = field(1, field(1, integer(1, 200)))
END = field(1, field(3, b""))


def body(text: str) -> bytes:
    return field(1, field(2, text))


def response_constant(base: Json) -> Json:
    nonce = seeded("constant response", 32)
    response = Response(base, nonce)
    head = field(1, field(1, integer(1, 200) + header("content-type", "text/event-stream")))
    plaintexts = [pad(r, 512) for r in (head, body("data: {}\n\n"), b"", body("data: [DONE]\n\n"), END)]
    return {
        "response_nonce": nonce.hex(),
        "k_res": response.k_res.hex(),
        "plaintexts": [p.hex() for p in plaintexts],
        "payloads": [response.record(i, p, i == len(plaintexts) - 1).hex() for i, p in enumerate(plaintexts)],
        "padding": "constant-512",
    }


def responses_refused(base: Json, constant: Json) -> list[Json]:
    """All of them answer `request`; what is not made here is `response` or `response_constant`, changed."""
    first, second = (bytes.fromhex(p) for p in base["response"]["payloads"])
    ticks = [bytes.fromhex(p) for p in constant["payloads"]]
    made = Response(base, seeded("refused responses", 32))
    cases: list[Json] = []

    def case(why: str, payloads: Iterable[bytes]) -> None:
        cases.append({"why": why, "payloads": [p.hex() for p in payloads]})

    case("no record", [])
    case("an empty payload", [b""])
    case("a first payload that ends in the response nonce", [first[:40]])
    case("a first payload without a record", [first[:48]])
    case("a key id that the request was not sealed to", [flipped(first, 0), second])
    case("another response nonce", [flipped(first, 20), second])
    case("cut off after the first record", [first])
    case("cut off before the last record", ticks[:-1])
    case("data after the last record", [first, second, second])
    case("an empty payload after the last record", [first, second, b""])
    case("a flipped bit in the first record", [flipped(first, 60), second])
    case("a flipped bit in the tag of the last record", [first, flipped(second, len(second) - 1)])
    case("a truncated record", [first, second[:-1]])
    case("two records swapped", [ticks[0], ticks[2], ticks[1], *ticks[3:]])
    case("a record dropped", [ticks[0], ticks[1], *ticks[3:]])
    case("a record replayed", [*ticks[:2], ticks[1], *ticks[2:]])
    case("a record of another response spliced in", [first, ticks[1]])
    case("the first payload again, preamble and all", [ticks[0], ticks[0], *ticks[1:]])
    case("a last record without an end", made.payloads(HEAD, body("x")))
    case("a last record without any frame", made.payloads(HEAD, b""))
    case("an end in a record that is not the last", [*made.payloads(HEAD + END, last=False)])
    case("an end, then a last record", made.payloads(HEAD + END, END))
    case("two ends", made.payloads(HEAD, END + END))
    case("a body before the head", made.payloads(body("x") + HEAD, END))
    case("an end without a head", made.payloads(END))
    case("two heads", made.payloads(HEAD, HEAD, END))
    case("two heads in one record", made.payloads(HEAD + HEAD, END))
    case("a body after the end", made.payloads(HEAD, END + body("x")))
    case("a frame without content", made.payloads(HEAD + field(1, b""), END))
    case("non-zero padding", [made.record(0, pad(HEAD, 64)[:-1] + b"\1"), made.record(1, pad(END, 64), True)])
    case(
        "a length prefix beyond the record",
        [made.record(0, b"\0\0\0\x3d" + bytes(60)), made.record(1, pad(END, 64), True)],
    )
    case("a plaintext too short for a length prefix", [made.record(0, bytes(3)), made.record(1, pad(END, 64), True)])
    case("a plaintext that is not a ResponseRecord", [made.record(0, pad(b"\x0a\xff", 64))])
    return cases


# Claims, section 2.


def canonical(value: Any) -> bytes:
    """RFC 8785 for the values used here: ASCII names and integers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def claims(base: Json) -> list[Json]:
    key = base["key"]
    digest = "sha256:" + hashlib.sha256(b"example").hexdigest()
    good: Json = {
        "version": 1,
        "boot_id": seeded("boot", 16).hex(),
        "keys": [
            {
                "key_id": key["key_id"],
                "suite": SUITE_NAME,
                "public_key": b64url(bytes.fromhex(key["public_key"])),
                "not_before": 1790000000,
                "not_after": 1790003600,
            }
        ],
        "signing_key": {"algorithm": "Ed25519", "public_key": b64url(bytes.fromhex(base["receipt"]["public"]))},
        "model": {"name": "example/model", "digest": digest, "signature": None},
        "engine": {"name": "vllm", "version": "0.32.0", "arguments": {"max_model_len": 4096}, "digest": digest},
        "cache": {
            "salt": "required",
            "hash": "sha256",
            "tiers": [{"medium": "gpu", "bytes": 1073741824, "encryption": None, "key": None}],
        },
        "stream": {"padding": "bucket-256", "tick_ms": 20},
        "devices": [{"type": "nvidia-gpu", "index": 0, "architecture": "HOPPER", "evidence": digest}],
        "tee": {"type": "simulated"},
        "launcher": {"version": "0.1.0", "config": digest},
        "info": {},
    }
    raw = canonical(good)
    cases: list[Json] = []

    def case(why: str, accepted: bool, data: bytes) -> None:
        try:
            content = {"utf8": data.decode()}
        except UnicodeDecodeError:
            content = {"hex": data.hex()}
        cases.append({"why": why, "accepted": accepted, **content})

    def put(*path: str | int, value: Any) -> bytes:
        changed = copy.deepcopy(good)
        place: Any = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        return canonical(changed)

    def info(text: str) -> bytes:
        return raw.replace(b'"info":{}', b'"info":' + text.encode())

    def without(name: str) -> bytes:
        return canonical({k: v for k, v in good.items() if k != name})

    signature = {"method": "sigstore", "identity": "release@example.org"}
    disk = {"medium": "disk", "bytes": 0, "encryption": "AES-256-GCM", "key": "salt"}

    case("canonical and complete", True, raw)
    case("extra members inside info", True, info('{"note":{"a":[1,true,null,"\u20ac"]}}'))
    case("info ordered by UTF-16 code units, not by code points", True, info('{"\U0001f600":1,"\ue000":2}'))
    case("numbers in the form of ECMAScript", True, info('{"a":1e+21,"b":0.1,"c":1e-7,"d":9007199254740991}'))
    case("a signed model", True, put("model", "signature", value=signature))
    case("a disk tier, encrypted by salt", True, put("cache", "tiers", value=[good["cache"]["tiers"][0], disk]))
    case("no devices", True, put("devices", value=[]))
    case("spaces", False, json.dumps(good, sort_keys=True).encode())
    case("a newline at the end", False, raw + b"\n")
    case("a byte order mark", False, b"\xef\xbb\xbf" + raw)
    case("a duplicate member, of the same value", False, raw.replace(b'"version":1', b'"version":1,"version":1'))
    case("a duplicate member inside info", False, info('{"a":1,"a":1}'))
    case("a duplicate member, once escaped", False, raw.replace(b'"version":1', b'"version":1,"\\u0076ersion":1'))
    case("unordered members", False, json.dumps(good, separators=(",", ":")).encode())
    case("info ordered by code points, not by UTF-16 code units", False, info('{"\ue000":2,"\U0001f600":1}'))
    case("a needless escape", False, info('{"note":"\\u0041"}'))
    case("a missing member", False, without("launcher"))
    case("a missing info", False, without("info"))
    case("an extra member", False, put("note", value="x"))
    case("an extra member below the top", False, put("engine", "note", value="x"))
    case("a member that is null where it may not be", False, put("model", "name", value=None))
    case("NaN", False, info('{"a":NaN}'))
    case("an infinity", False, info('{"a":Infinity}'))
    case("a number beyond a double", False, info('{"a":1e+400}'))
    case("an integer above 2^53", False, info('{"a":9007199254740993}'))
    case("minus zero", False, info('{"a":-0}'))
    case("an integer written as a fraction", False, raw.replace(b'"version":1', b'"version":1.0'))
    case("not UTF-8", False, raw.replace(b"example/model", b"example/\xff"))
    case("a lone surrogate", False, info('{"a":"\\ud800"}'))
    case("an array", False, b"[" + raw + b"]")
    case("empty", False, b"")
    case("another version", False, put("version", value=2))
    case("a version that is true", False, put("version", value=True))
    case("a version that is a string", False, put("version", value="1"))
    case("no key", False, put("keys", value=[]))
    case("a key_id in capitals", False, put("keys", 0, "key_id", value=key["key_id"].upper()))
    case("a public key in padded base64url", False, put("signing_key", "public_key", value="AAA="))
    case("a digest without its algorithm", False, put("model", "digest", value=digest[7:]))
    case("a digest with a newline behind it", False, put("model", "digest", value=digest + "\n"))
    case("a medium that is not in the list", False, put("cache", "tiers", 0, "medium", value="network"))
    case("a TEE that is not in the list", False, put("tee", "type", value="sgx"))
    case("a salt that is not required", False, put("cache", "salt", value="optional"))
    case("a padding that does not exist", False, put("stream", "padding", value="bucket-"))
    case("a constant padding without a tick", False, put("stream", value={"padding": "constant-512", "tick_ms": 0}))
    return cases


# Salts, section 6.


def salts() -> list[Json]:
    random = seeded("salt", 96)
    block = seeded("block", 8)
    with_plus = next(s for i in range(99) if {"+", "/"} <= set(s := base64.b64encode(seeded(f"plus {i}", 32)).decode()))
    accepted = {
        "base64url of 32 bytes": b64url(random[:32]),
        "standard base64 of 32 bytes, with padding": with_plus,
        "standard base64 of 32 bytes, without padding": with_plus.rstrip("="),
        "hex of 32 bytes": random[:32].hex(),
        "hex of 32 bytes, capitals": random[:32].hex().upper(),
        "base64url of 48 bytes": b64url(random[:48]),
        "hex of 64 bytes, the longest": random[:64].hex(),
        "base64url of 96 bytes, the longest": b64url(random),
    }
    refused = {
        "empty": "",
        "too short": b64url(random[:32])[:42],
        "too long": b64url(random) + "A",
        "too long, hex": random[:65].hex(),
        "hex of 31 bytes": random[:31].hex(),
        "hexadecimal digits alone, 44 of them: hex of 22 bytes, not base64 of 33": random[:22].hex(),
        "hexadecimal digits alone, an odd number": random[:32].hex()[:63],
        "one character throughout": "A" * 43,
        "one character throughout, hex": "0" * 64,
        "a block of 8 bytes, repeated, hex": (block * 4).hex(),
        "a block of 8 bytes, repeated, base64url": b64url(block * 5),
        "not base64": "correct horse battery staple, correct horse battery",
        "both base64 alphabets at once": with_plus[:20] + "-_" + with_plus[22:43],
        "a newline at the end": b64url(random[:32]) + "\n",
        "a space at the beginning": " " + random[:32].hex(),
        "not ASCII": b64url(random[:32])[:42] + "\u0661\u0661",
    }
    both = [(accepted, True), (refused, False)]
    return [{"why": why, "accepted": ok, "salt": salt} for cases, ok in both for why, salt in cases.items()]


def simulated_evidence(root: str, claims_utf8: str) -> Json:
    key = Ed25519PrivateKey.from_private_bytes(seeded("simulated TEE", 32))
    claims_hash = hashlib.sha512(claims_utf8.encode()).digest()
    report_data = hashlib.sha512(b"strongroom/1 report" + bytes.fromhex(root) + claims_hash).digest()
    public = key.public_key().public_bytes_raw()
    report = public + report_data + key.sign(b"strongroom/1 simulated" + report_data)
    return {
        "private": key.private_bytes_raw().hex(),
        "public": public.hex(),
        "report_data": report_data.hex(),
        "report": report.hex(),
    }


def additions(base: Json) -> Json:
    all_claims = claims(base)
    two, constant = request_two_envelopes(), response_constant(base)
    return {
        "salts": salts(),
        "claims": all_claims,
        "request_two_envelopes": two,
        "requests_refused": requests_refused(base, two),
        "response_constant": constant,
        "responses_refused": responses_refused(base, constant),
        "simulated_evidence": simulated_evidence(base["merkle"][0]["root"], all_claims[0]["utf8"]),
    }


def main() -> None:
    present = json.loads(FILE.read_text(encoding="utf-8"))
    base = {name: value for name, value in present.items() if name not in ADDED}
    FILE.write_text(json.dumps(base | additions(base), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
