"""Events: a closed list, as JSON for machines and as text for people."""

import json
import string

import pytest

from strongroom.launcher.events import Event, emit

FIELDS = {"line": "x\ny", "digest": "sha256:0"}


def fields_of(event: Event) -> dict[str, str]:
    names = [name for _, name, _, _ in string.Formatter().parse(event.value) if name]
    return {name: FIELDS.get(name, "7") for name in names}


@pytest.mark.parametrize("event", Event)
def test_on_a_pipe_each_event_is_one_line_of_json(event: Event, capfd: pytest.CaptureFixture[str]) -> None:
    emit(event, **fields_of(event))
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    record = json.loads(err)
    assert record["event"] == event.name.lower().replace("_", "-")
    assert record["message"] == event.value.format(**fields_of(event))
    assert {"time", "event", "message", *fields_of(event)} == set(record)


def test_on_a_terminal_it_is_text_and_the_simulation_shouts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    emit(Event.STOPPED)
    emit(Event.SIMULATED)
    stopped, simulated = capsys.readouterr().err.splitlines()
    assert stopped.endswith(" stopped")
    assert "\x1b[" not in stopped
    assert "\x1b[" in simulated
    assert "NOTHING" in simulated


def test_an_event_that_is_not_in_the_list_cannot_be_said() -> None:
    with pytest.raises(AttributeError):
        emit("a prompt")  # type: ignore[arg-type]


def test_a_field_that_the_event_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        emit(Event.MODEL_DIGEST)
