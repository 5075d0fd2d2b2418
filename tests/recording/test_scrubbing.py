"""`Scrubber`: keys are overwritten at every cut, lengths stay, and other bytes do not change."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamtools.recording.redaction import MAX_BUFFERED, MAX_LINE, MAX_SECRET, Scrubber, scrub
from tests.support.cases import cases, together
from tests.support.planted import KEYS, core

SECRETS = ["hunter2!", 'a "quoted" päss', "id-12345", "hunter2!!"]
PLANTED = [*KEYS.values(), *("hunter2!", "hunter2!!", 'a \\"quoted\\" p\\u00e4ss', 'a \\"quoted\\" päss', "id-12345")]
HARMLESS = [
    *("the task-scheduling-with-many-words", "sk-learn", "Bearer authentication", "bearer", "eyes", "eyJ", "AKIA"),
    *("hf_hub_download_of_a_whole_repository", "npm_config_registry_of_the_whole_company"),
    *("ghp", "hf_", "disk-usage", "xox", "github_pat_", "hunter", "id-", " ", "\n", '"', "\\n", "\\", "é", "-", "e"),
    *('data: {"choices":[{"delta":{"content":"', '"}}]}\n\n', "AAAA/BBBB+CCCC==", "eyJhbGciOiJIUzI1NiJ9", "Bearer "),
]


def in_pieces(data: bytes, cuts: Iterable[int], secrets: Sequence[str] = SECRETS, *, complete: bool = True) -> bytes:
    """Return the scrubbed `data`, which is fed in pieces. Check that no more bytes are returned than were fed."""
    scrubber = Scrubber(secrets)
    result, fed = b"", 0
    for start, stop in itertools.pairwise([0, *cuts, len(data)]):
        result += scrubber.feed(data[start:stop])
        fed = stop
        assert len(result) <= fed
        assert fed - len(result) <= 2 * (MAX_LINE + MAX_BUFFERED)  # two passes: secrets, and then keys
    return result + scrubber.close(complete=complete)


@together("before", ["", " ", '"', "=", "\\n", "\\\\n", "\\u003c", "%20", ":", "(", "é", "**", "/"])
def test_keys_are_overwritten(before: str) -> None:
    """The prefix of a key stays."""
    with cases() as case:
        for name, key in KEYS.items():
            with case(name):
                data = f'{{"text":"{before}{key}", "more": 1}}'.encode()
                written = scrub(data)
                assert len(data) == len(written)
                assert core(key) not in written
                assert written.startswith(f'{{"text":"{before}{key[:2]}'.encode())
                assert written.endswith(b'", "more": 1}')


@together("key", KEYS.values(), ids=KEYS)
def test_keys_are_overwritten_at_every_cut(key: str) -> None:
    data = f'data: {{"text":"Here: {key} and"}}\n\n'.encode()
    whole = scrub(data)
    assert [whole] * (len(data) - 1) == [in_pieces(data, [cut], ()) for cut in range(1, len(data))]
    assert whole == in_pieces(data, range(1, len(data)), ())


@given(st.lists(st.sampled_from([*PLANTED, *HARMLESS]) | st.text(max_size=5), max_size=12), st.data())
@example(["sk-", "a" * 16], None)
@example(["p\\u00e4ss", "sk-proj-" + "aB3_d-E9" * 6], None)
def test_every_cut_gives_the_same(parts: list[str], data: st.DataObject | None) -> None:
    """A second pass changes nothing."""
    text = "".join(parts).encode()
    cuts = [] if data is None else sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=20)))
    whole = in_pieces(text, [])
    assert len(text) == len(whole)
    assert whole == in_pieces(text, cuts)
    assert whole == in_pieces(text, range(1, len(text)))
    assert whole == in_pieces(whole, cuts)
    assert all(new == old or new == ord("*") for old, new in zip(text, whole, strict=True))


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_other_bytes_do_not_change(data: bytes, places: list[int]) -> None:
    cuts = sorted(place % (len(data) + 1) for place in places)
    assert data == in_pieces(data, cuts)


@together("text", HARMLESS)
def test_words_that_begin_like_keys_do_not_change(text: str) -> None:
    data = f"{text} and more\n".encode()
    assert data == in_pieces(data, range(1, len(data)))


@pytest.mark.parametrize(
    "ending", ["", "risk", "a s", "a sk-abc", "an e", "see sk-" + "a" * 16, "Bearer abcdefgh01234567\\"]
)
def test_complete_lines_are_not_buffered(ending: str) -> None:
    scrubber = Scrubber()
    assert b"data: {}\n\n" == scrubber.feed(b"data: {}\n\n" + ending.encode())
    line = ending.encode() + b"\n"
    assert scrub(line) == scrubber.feed(b"\n")


def test_a_key_longer_than_the_buffer_is_overwritten() -> None:
    key = b"a" * (3 * MAX_LINE)
    data = b"see sk-" + key + b". sky\n"
    expected = b"see sk-" + b"*" * len(key) + b". sky\n"
    assert expected == scrub(data)
    for size in (1000, MAX_SECRET, MAX_LINE, 2 * MAX_LINE):
        assert expected == in_pieces(data, range(size, len(data), size), ())


@pytest.mark.parametrize(
    "place", [MAX_LINE - 30, MAX_LINE - MAX_SECRET - 10, MAX_LINE - MAX_SECRET, MAX_LINE, 2 * MAX_LINE - 20]
)
def test_parts_of_a_long_line_overlap(place: int) -> None:
    data = b"x " * (place // 2) + b" ".join(each.encode() for each in PLANTED) + b" x" * MAX_LINE
    for size in (999, MAX_LINE):
        assert scrub(data, SECRETS) == in_pieces(data, range(size, len(data), size))


def test_a_secret_text_may_contain_line_ends() -> None:
    secret = "-----BEGIN-----\nabc\ndef\n"
    data = f"one\ntwo {secret}three".encode()
    expected = b"one\ntwo " + b"*" * len(secret) + b"three"
    assert expected == in_pieces(data, range(1, len(data)), [secret])
    scrubber = Scrubber([secret])
    assert b"one\n" == scrubber.feed(data[:-10])
    assert b"" == scrubber.feed(b"\n")
    assert b"two -----BEGIN-----\nabc\n\n" == scrubber.feed(b"\n")


def test_an_escaped_slash_belongs_to_a_token() -> None:
    r"""Some servers write `\/` in JSON."""
    token = rb"abcdef\/ghi01234567890\/jk"
    data = rb'{"a":"{\"b\":\"Bearer %b\"}"}' % token
    assert data.replace(token, b"*" * len(token)) == in_pieces(data, range(1, len(data)), ()) == scrub(data)


def test_the_head_of_a_jwt_has_a_maximum_length() -> None:
    scrubber = Scrubber()
    assert b"" == scrubber.feed(b"eyJ" + b"a" * 1000)
    assert MAX_LINE - MAX_SECRET <= len(scrubber.feed(b"a" * MAX_LINE))
    data = b"eyJ" + b"a" * 5000 + b".eyJabcdefgh.abcdefgh"
    assert data.replace(b"abcdefgh.abcdefgh", b"*" * 17) == in_pieces(data, range(1, len(data)), ())


@together(
    ("cut_off", "written"),
    [
        *((b"see sk-abc", b"see sk-***"), (b"see sk", b"see sk"), (b"see hunt", b"see hunt")),
        *((b"see hunte", b"see *****"), (b"eyJhbGci", b"eyJ*****"), (b"hf_oau", b"hf_***")),
        *((b"hf_oauth_a", b"hf_oauth_*"), (b"the end", b"the end")),
    ],
)
def test_half_a_key_at_the_end_is_overwritten_if_the_stream_is_incomplete(cut_off: bytes, written: bytes) -> None:
    assert written == in_pieces(cut_off, [5], ["hunter2"], complete=False)
    assert cut_off == in_pieces(cut_off, [5], ["hunter2"])


def test_the_longest_secret_text_is_overwritten() -> None:
    scrubber = Scrubber(["abc", "abcdef"])
    assert b"" == scrubber.feed(b"abc")
    assert b"" == scrubber.feed(b"de")
    assert b"***deg\n" == scrubber.feed(b"g\n")
    assert b"******\n" == scrubber.feed(b"abcdef\n")
    assert b"***" == scrubber.feed(b"abc") + scrubber.close(complete=True)


@pytest.mark.parametrize("secret", ["", "x" * 5000])
def test_invalid_secrets_are_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="must have 1 to 4096 bytes"):
        Scrubber([secret])
