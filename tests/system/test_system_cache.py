"""Salted prefix caching, on the engine's own counts of cached tokens: hits within a scope, none across."""

import base64
import json
import secrets
from pathlib import Path

import openai
import pytest

from strongroom.client.channel import VerifiedChannel
from tests.service import Service, proxy
from tests.system.conftest import NAME

# More than two blocks of 128 tokens; the tokenizer gives one token a byte.
PROMPT = "All of this prompt is shared between the requests of this test. " * 8


def cached_tokens(client: openai.OpenAI, salt: str | None = None, prompt: str = PROMPT) -> int:
    answer = client.chat.completions.create(
        model=NAME,
        messages=[{"role": "user", "content": prompt}],
        max_tokens=1,
        extra_body={} if salt is None else {"cache_salt": salt},
    )
    assert answer.usage.prompt_tokens_details is not None, "cached tokens must be reported"
    return answer.usage.prompt_tokens_details.cached_tokens


def test_the_same_salt_hits_and_another_misses(client: openai.OpenAI) -> None:
    mine, other = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    assert cached_tokens(client, mine) == 0
    assert cached_tokens(client, mine) >= 256, "control: the cache works"
    assert cached_tokens(client, other) == 0
    assert cached_tokens(client, mine) >= 256


def test_a_request_without_a_salt_hits_nothing_not_even_its_twin(client: openai.OpenAI) -> None:
    assert [cached_tokens(client) for _ in range(3)] == [0, 0, 0]


async def test_the_worker_draws_a_salt_for_a_request_that_arrives_without_one(channel: VerifiedChannel) -> None:
    body = json.dumps({"model": NAME, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 1}).encode()
    for _ in range(3):
        response = await channel.request("/v1/chat/completions", body)
        usage = json.loads(await response.read())["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    # Control: the same body with a salt does hit.
    salted = json.dumps(json.loads(body) | {"cache_salt": secrets.token_urlsafe(32)}).encode()
    seen = []
    for _ in range(2):
        response = await channel.request("/v1/chat/completions", salted)
        seen.append(json.loads(await response.read())["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert seen[0] == 0
    assert seen[1] >= 256


def test_one_changed_character_of_a_salt_is_another_scope(client: openai.OpenAI) -> None:
    salt = secrets.token_urlsafe(32)
    changed = ("A" if salt[5] != "A" else "B").join((salt[:5], salt[6:]))
    cached_tokens(client, salt)
    assert cached_tokens(client, changed) == 0
    assert cached_tokens(client, salt) >= 256


def test_every_choice_of_a_request_stays_in_its_scope(client: openai.OpenAI) -> None:
    mine, prompt = secrets.token_urlsafe(32), PROMPT + "thrice"
    client.chat.completions.create(
        model=NAME, n=3, messages=[{"role": "user", "content": prompt}], max_tokens=2, extra_body={"cache_salt": mine}
    )
    assert cached_tokens(client, secrets.token_urlsafe(32), prompt) == 0
    assert cached_tokens(client, mine, prompt) >= 256, "control: the choices did fill the scope"


def test_a_salt_file_is_a_scope_that_two_proxies_share(service: Service, policy_path: Path, folder: Path) -> None:
    seen = []
    path = folder / "salt"
    path.write_text(secrets.token_urlsafe(32) + "\n")
    path.chmod(0o600)
    for _ in range(2):
        with proxy(service.address, policy_path, "--cache-salt-file", str(path)) as url:
            client = openai.OpenAI(base_url=url, api_key="unused", max_retries=0)
            seen += [cached_tokens(client), cached_tokens(client, secrets.token_urlsafe(32))]
    assert seen[0] == seen[1] == seen[3] == 0, "a request's own salt wins over the file's"
    assert seen[2] >= 256


WEAK = {
    "empty": "",
    "short": "hunter2",
    "31 bytes": base64.urlsafe_b64encode(secrets.token_bytes(31)).decode(),
    "repetitive": "A" * 43,
    "repeated": "abcd" * 11,
    "too long": secrets.token_urlsafe(200),
    "not base64": "?" * 50,
    "hexadecimal of 22 bytes": secrets.token_hex(22),
    "a number": 12345,
    "a list": [secrets.token_urlsafe(32)],
}


@pytest.mark.parametrize("name", WEAK)
def test_a_weak_salt_is_refused_and_says_how_to_make_one(client: openai.OpenAI, name: str) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        cached_tokens(client, WEAK[name])
    assert refusal.value.status_code == 400
    assert refusal.value.body["param"] == "cache_salt"
    assert "openssl rand -base64 32" in refusal.value.message
    if isinstance(WEAK[name], str) and WEAK[name]:
        assert WEAK[name] not in refusal.value.message


@pytest.mark.parametrize(
    "make", [secrets.token_urlsafe, secrets.token_hex, lambda n: base64.b64encode(secrets.token_bytes(n)).decode()]
)
def test_strong_salts_of_every_alphabet_are_accepted(client: openai.OpenAI, make: object) -> None:
    salt = make(32)
    cached_tokens(client, salt)
    assert cached_tokens(client, salt) >= 256
