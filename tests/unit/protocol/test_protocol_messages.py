"""The frozen numbers: messages, codes and limits as docs/protocol.md, sections 5, 7 and 8, lists them."""

import pytest
from google.protobuf.descriptor import FieldDescriptor

from strongroom.protocol import limits
from strongroom.protocol.errors import RequestRefused, WireCode
from strongroom.protocol.v1 import strongroom_pb2

TYPES = {
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_BOOL: "bool",
}
MESSAGES = {
    "AttestationRequest": "1 nonce bytes",
    "AttestationBundle": "1 claims bytes, 2 tee Evidence, 3 devices repeated Evidence, 4 nonce_path repeated bytes, "
    "5 nonce_index uint32, 6 nonce_count uint32",
    "Evidence": "1 type string, 2 report bytes, 3 certificates repeated bytes, 4 endorsements repeated Endorsement",
    "Endorsement": "1 type string, 2 data bytes",
    "SealedRequest": "1 envelopes repeated Envelope, 2 ciphertext bytes",
    "Envelope": "1 key_id bytes, 2 sealed bytes",
    "SealedRecord": "1 payload bytes",
    "InferenceRequest": "1 path string, 2 headers repeated Header, 3 body bytes, 4 stream StreamProfile, "
    "5 cache CacheProfile",
    "Header": "1 name string, 2 value string",
    "StreamProfile": "1 padding string, 2 tick_ms uint32",
    "CacheProfile": "1 reuse bool, 2 offload_cpu bool, 3 offload_disk bool",
    "ResponseRecord": "1 frames repeated Frame",
    "Frame": "1 head Head, 2 body bytes, 3 end End",
    "Head": "1 status uint32, 2 headers repeated Header",
    "End": "1 receipt bytes, 2 signature bytes",
}


def described(field: FieldDescriptor) -> str:
    kind = field.message_type.name if field.message_type else TYPES[field.type]
    return f"{field.number} {field.name} {'repeated ' if field.is_repeated else ''}{kind}"


def test_the_package_has_the_messages_of_the_page_and_no_others() -> None:
    assert strongroom_pb2.DESCRIPTOR.package == "strongroom.v1"
    assert set(strongroom_pb2.DESCRIPTOR.message_types_by_name) == set(MESSAGES)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_has_the_fields_of_the_page(name: str) -> None:
    message = strongroom_pb2.DESCRIPTOR.message_types_by_name[name]
    assert ", ".join(described(field) for field in message.fields) == MESSAGES[name]


def test_a_frame_holds_one_of_its_fields() -> None:
    frame = strongroom_pb2.DESCRIPTOR.message_types_by_name["Frame"]
    assert [[field.name for field in oneof.fields] for oneof in frame.oneofs] == [["head", "body", "end"]]


@pytest.mark.parametrize(
    ("service", "method", "request_type", "response_type", "streams"),
    [
        ("Attestation", "GetAttestation", "AttestationRequest", "AttestationBundle", False),
        ("Inference", "Infer", "SealedRequest", "SealedRecord", True),
    ],
)
def test_a_service_has_the_one_method_of_the_page(
    service: str, method: str, request_type: str, response_type: str, streams: bool
) -> None:
    (found,) = strongroom_pb2.DESCRIPTOR.services_by_name[service].methods
    assert (found.name, found.input_type.name, found.output_type.name) == (method, request_type, response_type)
    assert (found.client_streaming, found.server_streaming) == (False, streams)


def test_the_error_codes_and_their_grpc_statuses_are_the_closed_list() -> None:
    assert {code.code: code.grpc_status for code in WireCode} == {
        "unknown-key": "FAILED_PRECONDITION",
        "replay": "ALREADY_EXISTS",
        "malformed": "INVALID_ARGUMENT",
        "overloaded": "RESOURCE_EXHAUSTED",
        "replay-set-full": "RESOURCE_EXHAUSTED",
        "too-large": "RESOURCE_EXHAUSTED",
        "not-ready": "UNAVAILABLE",
        "draining": "UNAVAILABLE",
    }


@pytest.mark.parametrize("code", WireCode)
def test_a_refusal_says_its_fixed_text_and_nothing_else(code: WireCode) -> None:
    refused = RequestRefused(code)
    assert refused.code is code
    assert str(refused) == code.advice
    assert refused.args == (code.advice,)


def test_the_limits_are_those_of_the_page() -> None:
    assert limits.MAX_SEALED_REQUEST_BYTES == 32 * 2**20
    assert limits.MAX_RECORD_PLAINTEXT_BYTES == 2**20
    assert limits.MIN_REQUEST_PLAINTEXT_BYTES == 1024
    assert limits.MAX_ENVELOPES == 8
    assert (limits.MIN_NONCE_BYTES, limits.MAX_NONCE_BYTES) == (16, 64)
    assert limits.MAX_NONCES_IN_A_ROUND == 1024
    assert limits.MAX_REPLAY_IDS == 2**20
    assert limits.MAX_REMEMBERED_RETIRED_KEYS == 1024
    assert (limits.MIN_SALT_CHARACTERS, limits.MAX_SALT_CHARACTERS, limits.MIN_SALT_BYTES) == (43, 128, 32)
    assert (limits.KEY_LIFETIME_SECONDS, limits.KEY_GRACE_SECONDS) == (3600, 600)
