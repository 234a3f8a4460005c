"""The client that was written from the protocol text alone agrees with the known answers; see also tests/system."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

CLIENT = Path(__file__).with_name("independent_client.py")
VECTORS = Path(__file__).parent.parent / "vectors" / "protocol-v1.json"


def check(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CLIENT), "vectors", str(path)], capture_output=True, text=True)


def test_it_passes_the_known_answers() -> None:
    result = check(VECTORS)
    assert result.returncode == 0, result.stdout
    assert "FAIL" not in result.stdout
    assert len(result.stdout.splitlines()) > 60


@pytest.mark.parametrize(
    "member", [("key", "key_id"), ("request", "replay_id"), ("response", "k_res"), ("cache", "namespace_utf8")]
)
def test_a_changed_answer_is_noticed(tmp_path: Path, member: tuple[str, str]) -> None:
    vectors = json.loads(VECTORS.read_text())
    value = vectors[member[0]][member[1]]
    vectors[member[0]][member[1]] = ("0" if value[-1] != "0" else "1").join((value[:-1], ""))
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(vectors))
    result = check(path)
    assert result.returncode == 1
    assert "FAIL" in result.stdout


def test_it_shares_no_code_with_the_project() -> None:
    assert "strongroom" not in "\n".join(
        line for line in CLIENT.read_text().splitlines() if line.lstrip().startswith(("import ", "from "))
    )
