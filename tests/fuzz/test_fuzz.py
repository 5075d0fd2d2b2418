"""Tests of the fuzzer: it finds planted faults, reports how to repeat them, and is deterministic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from streamtools import Parser, StreamMachine
from streamtools.conversation import emulation
from streamtools.errors import RecordingError
from streamtools.events import Done, UIEvent
from streamtools.history import formats, history_reader
from streamtools.json_values import well_formed
from streamtools.outputs.sse import NativeEncoder
from streamtools.recording import files as recordings
from streamtools.sources import FrameAdapter, SSEDecoder
from tests.fuzz import plain, running
from tests.fuzz.__main__ import main
from tests.fuzz.running import Finding, TooLong, shrink, try_out
from tests.fuzz.target import Input, Target, seed
from tests.fuzz.targets import TARGETS, choose
from tests.parsing.faults import a_failed_candidate_is_late, a_marker_is_shown, pending_text_is_lost
from tests.support.patching import before

Plant: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def the_last_frame_is_lost(patch: pytest.MonkeyPatch) -> None:
    """If a stream does not end in a blank line."""
    patch.setattr(SSEDecoder, "close", lambda decoder: [])


def a_source_keeps_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    """Keep each chunk until the stream ends."""
    before(patch, FrameAdapter, "take", lambda adapter, item: adapter.__dict__.setdefault("read", []).append(item))


def a_source_ends_twice(patch: pytest.MonkeyPatch) -> None:
    """Report the end of the transport twice."""
    before(patch, FrameAdapter, "close", lambda adapter, cause=None: setattr(adapter, "_over", False))


def a_parser_keeps_what_it_reads(patch: pytest.MonkeyPatch) -> None:
    """Keep each delta until the text ends."""
    before(patch, Parser, "feed", lambda parser, delta: parser.__dict__.setdefault("read", []).append(delta))


def a_parser_reads_again(patch: pytest.MonkeyPatch) -> None:
    """Read the whole text again with each delta."""

    def look_back(parser: Parser, delta: str) -> None:
        kept = parser.__dict__
        kept["read"] = kept.get("read", "") + delta
        well_formed(kept["read"])

    before(patch, Parser, "feed", look_back)


def a_run_is_done_twice(patch: pytest.MonkeyPatch) -> None:
    """If calls are pending."""
    done = StreamMachine._done

    def say_again(machine: StreamMachine, *, left: bool = False) -> list[UIEvent]:
        events = done(machine, left=left)
        return events * 2 if machine.pending else events

    patch.setattr(StreamMachine, "_done", say_again)


def a_decision_without_arguments(patch: pytest.MonkeyPatch) -> None:
    """Raise for it."""
    read = emulation._read_call

    def insist(value: Any) -> Any:
        wanted = read(value)
        return value["arguments"] and wanted if wanted is not None else None

    patch.setattr(emulation, "_read_call", insist)


def a_message_without_content(patch: pytest.MonkeyPatch) -> None:
    """Raise another error than the documented one."""
    for module in (formats, history_reader):
        patch.setattr(module, "read_content", lambda content: content["text"])


def an_event_of_two_lines(patch: pytest.MonkeyPatch) -> None:
    """A body holds more than the events."""
    encode = NativeEncoder.encode

    def encode_twice(encoder: Any, event: UIEvent) -> bytes:
        return encode(encoder, event) + (b"\n" if isinstance(event, Done) else b"")

    patch.setattr(NativeEncoder, "encode", encode_twice)


def a_file_of_bytes(patch: pytest.MonkeyPatch) -> None:
    """Refuse it with another error than files get."""
    read_head = recordings._read_head

    def insist(lines: Any, line: bytes | None) -> Any:
        try:
            return read_head(lines, line)
        except RecordingError as error:
            if "is not a recording" in str(error):
                raise UnicodeError(str(error)) from None
            raise

    patch.setattr(recordings, "_read_head", insist)


FAULTS: list[tuple[str, Plant]] = [
    ("frames", the_last_frame_is_lost),
    ("source:openai", a_source_keeps_what_it_reads),
    ("source:ollama", a_source_ends_twice),
    ("dialect:hash_marker", pending_text_is_lost),
    ("dialect:glm_xml", a_marker_is_shown),
    ("dialect:tilde_fence", a_failed_candidate_is_late),
    ("dialect:hash_marker", a_parser_keeps_what_it_reads),
    ("dialect:hash_marker", a_parser_reads_again),
    ("auto", pending_text_is_lost),
    ("machine", a_run_is_done_twice),
    ("decisions", a_decision_without_arguments),
    ("history", a_message_without_content),
    ("encoders", an_event_of_two_lines),
    ("recordings", a_file_of_bytes),
]


@pytest.mark.parametrize(("name", "plant"), FAULTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_fault_is_found(name: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """With five hundred inputs. The stored input shows the fault again."""
    plant(monkeypatch)
    running.be_quiet()
    target = TARGETS[name]()

    report, finding = plain.run(target, seed=1, runs=500)

    assert finding is not None
    assert report.executions <= 500
    assert try_out(target, finding.data)[1] is not None
    monkeypatch.undo()
    assert try_out(target, finding.data)[1] is None


@pytest.mark.deep
def test_every_target_can_be_run() -> None:
    """A few inputs of each target break no law."""
    assert 0 == main(["--runs", "12", "all"])


def test_the_same_seed_gives_the_same_inputs() -> None:
    """Another seed or another target gives other inputs."""

    def drawn(name: str, chance: int) -> list[bytes]:
        target = TARGETS[name]()
        first = target.seeds()
        return list(islice(plain.inputs(target, chance, first, first), len(first) + 200))

    assert drawn("frames", 1) == drawn("frames", 1)
    assert drawn("frames", 1) != drawn("frames", 2)
    one, other = TARGETS["encoders"](), TARGETS["results"]()
    assert one.seeds() == other.seeds()
    assert drawn("encoders", 1) != drawn("results", 1)


def test_a_finding_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails as long as the fault is present."""
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        the_last_frame_is_lost(patch)
        assert 1 == main(["--runs", "100", "--seed", "3", "frames"])
        said = capsys.readouterr()
        command = next(line for line in said.err.splitlines() if line.startswith("repeat: "))
        _, path = command.split(" --replay ")
        data = Path(path).read_bytes()
        assert "target: frames, seed 3" in said.err
        assert f"input: {data!r}" in said.err
        assert f"FOUND {path}" in said.out
        assert 1 == main(["--replay", path])
        assert "AssertionError" in capsys.readouterr().out

    assert 0 == main(["--replay", path])
    assert "no law is broken" in capsys.readouterr().out


def test_invalid_arguments_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line."""
    assert 2 == main(["--runs", "1", "bogus"])
    assert "no target is named 'bogus'; see --list\n" == capsys.readouterr().err
    assert 2 == main(["frames"])
    assert "say --minutes or --runs\n" == capsys.readouterr().err
    assert 2 == main(["--replay", str(tmp_path / "frames-1")])
    assert str(tmp_path / "frames-1") in capsys.readouterr().err
    (tmp_path / "saved").write_bytes(b"")
    assert 2 == main(["--replay", str(tmp_path / "saved")])
    assert "no target is named 'saved'; see --list\n" == capsys.readouterr().err
    assert 2 == main(["--replay", str(tmp_path / "saved"), "source"])
    assert "one input is for one target: --replay FILE TARGET\n" == capsys.readouterr().err


def test_targets_are_selected_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    """One, a kind, the first, or all of them. No target runs twice."""
    assert ["frames"] == choose(["frames", "frames"])
    assert {"source:openai", "source:detect"} < set(choose(["source"]))
    assert ["frames", "machine", "decisions", "dialect:hash_marker", "dialect:tilde_fence"] == choose(["first"])
    assert 0 == main(["--list"])
    assert choose(["all"]) == capsys.readouterr().out.split()


def _target(check: Callable[[Input], Any]) -> Target:
    return Target("own", check, lambda: [seed(b"x")], [b"y"])


def test_an_endless_input_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is stopped after too much processor time."""
    monkeypatch.setattr(running, "_PATIENCE", 0.05)

    def turn_round(given: Input) -> Any:
        while True:
            pass

    _, finding = try_out(_target(turn_round), b"")

    assert finding is not None
    assert TooLong.__name__ in finding.error


def test_a_finding_is_shrunk() -> None:
    """Parts that are not needed for the failure are removed."""
    finding = Finding("own", b"aaaa(bbbb)cccc", "")

    assert b"()" == shrink(finding, lambda data: b"(" in data and b")" in data[data.index(b"(") :])
