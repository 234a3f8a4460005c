"""What a verifier accepts: a YAML file that names every check.

Leaving a check out is an error. Switching one off is the value `insecure_any`, which every appraisal reports.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from strongroom.attestation.errors import PolicyError
from strongroom.attestation.strict_yaml import BadYaml, load_yaml
from strongroom.protocol import canonical
from strongroom.protocol.claims import Digest, Stream

INSECURE_ANY = "insecure_any"

InsecureAny = Literal["insecure_any"]
Text = Annotated[str, StringConstraints(min_length=1)]
Digests = Annotated[list[Digest], Field(min_length=1)]
Texts = Annotated[list[Text], Field(min_length=1)]


def _check_arguments(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        raise ValueError(f"name at least one argument, or write {INSECURE_ANY}")
    try:
        canonical.encode(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError("values must be those of JSON") from error
    return value


def _check_integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be 1")
    return value


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ModelPolicy(_Closed):
    """Which weights may be served, under which name."""

    name: Texts | InsecureAny
    digest: Digests | InsecureAny


class EnginePolicy(_Closed):
    """What the engine must be; `arguments` lists members of `claims.engine.arguments` with their exact values."""

    name: Texts | InsecureAny
    version: Texts | InsecureAny
    arguments: Annotated[dict[str, Any], AfterValidator(_check_arguments)] | InsecureAny
    digest: Digests | InsecureAny


class CachePolicy(_Closed):
    """Where KV blocks may live. Salting and SHA-256 are no choice: claims without them do not parse."""

    tiers: Annotated[list[Literal["gpu", "cpu", "disk"]], Field(min_length=1)]


class LauncherPolicy(_Closed):
    """Which releases and configurations of the launcher are accepted."""

    version: Texts | InsecureAny
    config: Digests | InsecureAny


class Policy(_Closed):
    """The whole file. `insecure_allow_simulated` is the one member with a default, because its default is no."""

    version: Annotated[Literal[1], BeforeValidator(_check_integer)]
    insecure_allow_simulated: bool = False
    tee: list[Literal["sev-snp", "tdx", "azure-vtpm"]]
    devices: Literal["none"]
    suites: Annotated[list[Literal["MLKEM768-X25519/HKDF-SHA256/AES-256-GCM"]], Field(min_length=1)]
    model: ModelPolicy
    engine: EnginePolicy
    cache: CachePolicy
    # The least shape of every response.
    stream: Stream
    launcher: LauncherPolicy

    @model_validator(mode="after")
    def _accepts_something(self) -> "Policy":
        if not self.tee and not self.insecure_allow_simulated:
            raise ValueError("tee: an empty list accepts nothing; name sev-snp, tdx or azure-vtpm")
        return self


def parse_policy(text: str, source: str = "policy") -> Policy:
    """Read a policy; raises `PolicyError` with every fault, each with its place in the file."""
    try:
        document = load_yaml(text)
    except BadYaml as error:
        raise PolicyError(f"{source} is not YAML: {error}") from error
    if not isinstance(document, dict):
        raise PolicyError(f"{source} is not a policy: it must be a mapping that begins with `version: 1`")
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        raise PolicyError(f"{source} is not a policy:\n" + "\n".join(_faults(error))) from error


def _faults(error: ValidationError) -> list[str]:
    """One line a member, the alternatives of a union being one fault."""
    lines: dict[str, str] = {}
    for fault in error.errors():
        place = ".".join(str(part) for part in fault["loc"] if not _names_a_type(str(part))) or "policy"
        if fault["type"] == "missing":
            lines[place] = f"  {place}: is missing; a policy names every check ({INSECURE_ANY} switches one off)"
        else:
            lines.setdefault(place, f"  {place}: {fault['msg']}")
    return list(lines.values())


def _names_a_type(part: str) -> bool:
    return "[" in part or part in {"literal", "function-after"}


def load_policy(path: Path) -> Policy:
    """Read the policy file at `path`; raises `PolicyError`."""
    try:
        return parse_policy(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise PolicyError(f"cannot read the policy {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"the policy {path} is not UTF-8 text") from error
