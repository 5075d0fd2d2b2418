"""The laws of a vault: `restore(replace(text))` is the text, at any cut, and no value remains in a text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtools import rules
from streamtools.rules import Vault
from streamtools.rules import vault as vault_module
from streamtools.rules.matcher import Matcher, replace_matches, shown
from streamtools.testing.laws import cut
from tests.support.bounds import calls_made
from tests.support.cases import together

VALUES = ["ann@example.org", "bo@example.com", "+49 30 1234567", "Ann", 'Bo "B" Ek', "Zoë\\n"]
LOOKALIKES = ["<EMAIL_1>", "\\u003CEMAIL_1\\u003E", "<email 2>", "\\<PERSON\\_1\\>", "&lt;PHONE_1&gt;"]
LOOKALIKES += ["<QUOTED_1>", "<EMAIL_1", "<EMAIL_0>"]
PIECES = [*VALUES, *LOOKALIKES, *"<>\\&_1s ", "EMAIL", "a", "lt;", ", ", "[[", "]]", "\n", "Annex", "%40"]
texts = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)
places = st.lists(st.integers(0, 90), max_size=8)


def new_vault(state: dict[str, object] | None = None) -> Vault:
    def persons(text: str) -> list[str]:
        return [name for name in ("Ann", 'Bo "B" Ek', "Zoë\\n") if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]

    found = [rules.email(), rules.phone()]
    return Vault(found, finders={"person": persons}, state=state)


def restored(vault: Vault, pieces: list[str]) -> str:
    matcher = Matcher([vault.rule()])
    return "".join(map(replace_matches, [*map(matcher.feed, pieces), matcher.close()]))


@given(st.lists(texts, min_size=1, max_size=3), places)
def test_the_restored_text_is_the_text(several: list[str], at: list[int]) -> None:
    """At any cut, also for texts with placeholders, and with a vault that was stored."""
    vault = new_vault()
    sent = [vault.replace(text) for text in several]
    stored = new_vault(json.loads(json.dumps(vault.state)))
    for text, replaced in zip(several, sent, strict=True):
        for each in (vault, stored):
            assert each.restore(replaced) == text
            assert restored(each, cut(replaced, at)) == text == restored(each, list(replaced))


@given(st.lists(texts, min_size=1, max_size=3))
def test_no_value_remains(several: list[str]) -> None:
    """After all texts were learned. Also not in text of the model, and in JSON."""
    vault = new_vault()
    written = [json.dumps(text) for text in several]
    for text in several:
        vault.learn(text)
    values = [value for kind, found in vault.state["values"].items() if kind != "quoted" for value in found]

    for text in [*several, *written]:
        for replaced in (vault.replace(text), vault.replace(text, from_model=True)):
            outside = re.sub(r"<[A-Z]+_\d+>", "0", replaced)
            assert not [value for value in values if value.isalpha() and re.search(rf"\b{value}\b", outside)]
            assert not [value for value in values if not value.isalpha() and value in outside]


in_json = st.lists(
    st.sampled_from(["ann@example.org", "bo@example.com", "Ann", *'\n\t"/<é\U0001f600', " ", "x"]), max_size=9
)


@given(in_json.map("".join), st.booleans(), st.booleans())
def test_values_are_found_in_json(text: str, is_ascii: bool, is_nested: bool) -> None:
    """Next to escapes, also if JSON contains JSON text. Each value has its usual placeholder."""
    vault = new_vault()
    written = json.dumps({"a": text}, ensure_ascii=is_ascii).replace("<", "\\u003c" if is_ascii else "<")
    written = json.dumps(written, ensure_ascii=is_ascii) if is_nested else written
    sent = vault.replace(written)
    read = json.loads(json.loads(sent) if is_nested else sent)["a"]
    assert vault.restore(sent) == written
    assert shown([vault.rule()], read) == text or (is_nested and "é" in text)
    assert read == vault.replace(text) or "é" in text
    assert {"email", "person"}.issuperset(vault.state["values"])


KINDS = ("EMAIL", "PHONE", "PERSON", "QUOTED")
FORMS = ("<{}_1>", "\\u003c{}_1\\u003e", "&lt;{}_1&gt;", "\\<{}_1\\>", "\\&lt;{}_1\\&gt;", "\\\\u003c{}_1\\>")
LAST = (">", "\\>", "&gt;", "\\&gt;", "\\u003e", "u003e", "\\\\u003e")
ENDS = {form.format(kind)[at:] for form in FORMS for kind in KINDS for at in range(20)}
ENDS |= {end + last for kind in KINDS for end in (f"{kind}_1"[at:] for at in range(9)) for last in LAST}
AROUND = r"""[ \\"'`*]{0,3}"""
FORM = rf"(\\?)(?:<|&lt;|\\u003c){AROUND}(?:{'|'.join(KINDS)})s?s?[ \\_-]{{0,3}}\d{{1,6}}{AROUND}\1(?:>|&gt;|\\u003e)"


@given(st.text('<&lt;gEMAILPHONRSQUTD_1 \\"s>', max_size=14), st.sampled_from(["", "<EMAIL_1", "&lt;em", "\\<PHO"]))
def test_the_buffered_text_may_become_a_placeholder(text: str, before: str) -> None:
    """And nothing else is buffered, so no complete placeholder."""
    matcher = Matcher([new_vault().rule()])
    shown = "".join(replace_matches(matcher.feed(character)) for character in before + text)
    assert shown + matcher.pending == before + text
    assert not matcher.pending or any(re.fullmatch(FORM, matcher.pending + end, re.IGNORECASE) for end in ENDS - {""})


@together(
    "bent",
    [
        *("<EMAIL_1>", "<email_1>", "<Email_1>", "< EMAIL_1 >", "<EMAIL 1>", "<EMAIL-1>", "<EMAIL1>", "<EMAIL_01>"),
        *("<EMAIL\\_1>", "\\<EMAIL\\_1\\>", "<EMAILS_1>", "<'EMAIL_1'>", '<"EMAIL_1">', "<**EMAIL_1**>"),
        *("&lt;EMAIL_1&gt;", "&lt;EMAIL\\_1&gt;", "\\u003cEMAIL_1\\u003e"),
    ],
)
def test_a_bent_placeholder_is_restored(bent: str) -> None:
    vault = new_vault()
    vault.replace("ann@example.org")
    assert vault.restore(f"To {bent}!") == "To ann@example.org!"
    assert restored(vault, list(f'"{bent}"s')) == '"ann@example.org"s'


@together("text", ["EMAIL_1", "<EMAIL_2>", "<EMAIL_0>", "<MAIL_1>", "<EMAIL_>", "<EMAIL_1", "<b>", "a < b", "<1>"])
def test_other_text_does_not_change(text: str) -> None:
    """Also an unknown placeholder."""
    vault = new_vault()
    vault.replace("ann@example.org")
    assert vault.restore(text) == text == restored(vault, list(text))


def test_an_unknown_placeholder_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    vault = new_vault()
    shown([vault.rule()], "<EMAIL_7> <EMAIL_7>")
    assert [record.getMessage() for record in caplog.records] == ["unknown_placeholder placeholder='<EMAIL_7>'"]


def test_a_value_has_one_placeholder() -> None:
    """In all texts of the conversation, and where no rule finds it."""
    vault = new_vault()
    assert vault.replace("Ann: ann@example.org") == "<PERSON_1>: <EMAIL_1>"
    assert vault.replace("+49 30 1234567 or x+49 30 1234567x") == "<PHONE_1> or x<PHONE_1>x"
    assert vault.replace("(Anns Annex, ann%40example.org)") == "(<PERSON_2> Annex, <EMAIL_2>)"
    assert vault.restore("<PERSON_2> <EMAIL_2>") == "Anns ann%40example.org"
    assert shown([vault.rule()], "<PERSON_2> <EMAIL_2>") == "Anns ann@example.org"


@together(
    ("text", "sent"),
    [
        ("Ann Lee Smith Co.", "<PERSON_6>."),
        ("Lee Smith", "<PERSON_2>"),
        ("jo-annette", "<PERSON_6>"),
        ("Lee Smith, Ann Lee", "<PERSON_2>, <PERSON_1>"),
        ("Ann Lee Lee", "<PERSON_1> Lee"),
    ],
)
def test_values_that_overlap_are_replaced_completely(text: str, sent: str) -> None:
    """Also values of which no finder and no rule finds the second."""
    names = ["Ann Lee", "Lee Smith", "Smith Co", "jo-an", "annette"]
    vault = Vault(state={"values": {"person": names}})
    assert vault.replace(text) == sent
    assert vault.restore(sent) == text


def test_a_state_replaces_all_values() -> None:
    vault = new_vault()
    vault.learn("ann@example.org, bo@example.com")
    vault.load({"values": {"email": ["cy@example.net"]}})
    assert vault.restore("<EMAIL_1> <EMAIL_2>") == "cy@example.net <EMAIL_2>"


def test_text_of_the_model_keeps_its_placeholders() -> None:
    vault = new_vault()
    vault.replace("ann@example.org")
    written = "<EMAIL_1>, <email_1>, ann@example.org"
    assert vault.replace(written, from_model=True) == "<EMAIL_1>, <email_1>, <EMAIL_1>"
    assert vault.replace("<EMAIL_1>") == "<QUOTED_1>"
    assert vault.replace(written, from_model=True) == "<QUOTED_1>, <email_1>, <EMAIL_1>"


async def find_later(text: str) -> list[str]:
    """A finder that the vault cannot wait for."""
    return [text]


@together(
    ("options", "why"),
    [
        ({"finders": {"ipv4": list}}, "letters and '_', got 'ipv4'"),
        ({"finders": {"s": list}}, "letters and '_', got 's'"),
        ({"skip_roles": ["assistant"]}, "each of skip_roles must be one of 'system', 'user', got 'assistant'"),
        ({"skip_roles": "assistant"}, "each of skip_roles must be one of 'system', 'user', got 'assistant'"),
        ({"rules": rules.email()}, "the rules must be a list of rules, such as [rules.email()], got "),
        ({"rules": ["email"]}, "the rules must be a list of rules, such as [rules.email()], got 'email'"),
        ({"finders": [list]}, 'finders must be a dict, such as {"person": find_persons}'),
        ({"finders": {"person": "Ann"}}, "finders['person'] must be"),
        ({"finders": {"person": find_later}}, "finders['person'] must not be `async def`"),
        ({"state": '{"values": {}}'}, "the key 'values', such as json.loads(text), got str"),
        ({"state": {"email": []}}, "got one without 'values'"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, object], why: str) -> None:
    with pytest.raises((ValueError, TypeError), match=re.escape(why)):
        Vault(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("found", ["Ann Lee", [("Ann", 0)], None, iter(["Ann"])])
def test_a_finder_that_returns_no_list_of_texts(found: Any) -> None:
    """The error does not contain what was found."""
    with pytest.raises(TypeError, match=re.escape("finders['person'] must return a list of texts")) as raised:
        Vault(finders={"person": lambda text: found}).replace("Ann Lee")
    assert "Ann" not in str(raised.value)


@pytest.mark.deep
@pytest.mark.parametrize("unit", ["ann@example.org ", "<EMAIL_1> ", "<<<", "\\<EMAIL\\_", "Ann ", "a", "Ann Lee Ek "])
def test_twice_the_text_is_twice_the_work(unit: str) -> None:
    def work(count: int) -> int:
        vault = new_vault()
        sent = [vault.replace(unit * 50)]
        return calls_made(lambda: sent.append(vault.replace(unit * count))) + calls_made(
            lambda: restored(vault, list(unit * count))
        )

    work(2000)  # creates the automaton
    once, twice, four_times = map(work, (500, 1000, 2000))
    assert four_times - twice < 3 * (twice - once) + 500  # 2 if linear, 4 if quadratic


def test_a_long_run_of_backslashes_is_read_once() -> None:
    """A pattern that begins at each backslash would need hours."""
    text = '"' + "\\" * 500_000 + "<ann@example.org"
    assert new_vault().replace(text) == text.replace("ann@example.org", "<EMAIL_1>")


def widened(old: str, new: str) -> Callable[..., re.Pattern[str]]:
    return lambda *of: re.compile(_form(*of).pattern.replace(old, new), re.IGNORECASE)


def first_ones(spans: Iterable[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return the spans that overlap no earlier span."""
    kept: list[tuple[int, int, str]] = []
    for span in sorted(spans):
        kept += [span] if not kept or span[0] >= kept[-1][1] else []
    return kept


_form, _known, _joined = Vault._read_form, Vault._known, vault_module._joined
WIDER = [("<b", "(email", "([a-z]{1,9}|email"), ("<EMAIL_1234567", "{1,6}", "{1,7}"), ("<EMAIL_1>", "003e)", "003e) ?")]


@pytest.mark.parametrize(("text", "old", "new"), [("a<", "", ""), *WIDER])
def test_text_that_waits_too_long_is_caught(text: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(matcher: Matcher, piece: str) -> str:
        """Buffer the character before the live prefix, too."""
        found = replace_matches(feed(matcher, piece))
        matcher.pending = found[-1:] + matcher.pending
        return found[:-1]

    feed, check = Matcher.feed, test_the_buffered_text_may_become_a_placeholder.hypothesis.inner_test  # type: ignore[attr-defined]
    check(text, "")
    monkeypatch.setattr(Vault, "_read_form", widened(old, new)) if old else monkeypatch.setattr(Matcher, "feed", late)
    with pytest.raises(AssertionError, match=r"any\("):
        check(text, "")


@pytest.mark.deep
def test_a_quadratic_search_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that reads the whole text again for each piece."""
    feed = Matcher.feed
    monkeypatch.setattr(Matcher, "feed", lambda to, text: (feed(to, text), [len(text) for _ in range(to.position)])[0])
    with pytest.raises(AssertionError, match="< "):
        test_twice_the_text_is_twice_the_work("a")


FAULTS: dict[str, tuple[str, Any]] = {
    "forgets the escape": ("_joined", lambda spans: _joined([span for span in spans if span[2] != "quoted"])),
    "takes a backslash": ("Vault._read_form", widened(r"\\(?:>", r"\\?(?:>")),
    "overlaps": ("_joined", first_ones),
    "ignores overlaps": ("Vault._known", lambda vault, text: first_ones(_known(vault, text))),
    "reads escapes of JSON as letters": ("_masked", lambda text: text),
}


@pytest.mark.parametrize(("name", "fault"), FAULTS.values(), ids=[*FAULTS])
def test_a_planted_fault_is_caught(name: str, fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the first two laws, with few texts."""

    def check() -> None:
        vault = Vault([rules.email()], finders={"other": lambda text: ["x ann"] if "x ann" in text else []})
        several = ["ann@example.org bo@example.com", "<EMAIL_1>", "\\ann@example.org"]
        for text in several:
            assert restored(vault, list(vault.replace(text))) == text
        assert vault.replace("x ann@example.org") == "<OTHER_2>"
        assert Vault(state={"values": {"name": ["Ann Lee", "Lee Ek"]}}).replace("Ann Lee Ek") == "<NAME_3>"
        assert Vault([rules.email()]).replace('"\\nann@example.org"') == '"\\n<EMAIL_1>"'

    check()
    monkeypatch.setattr(f"streamtools.rules.vault.{name}", fault)
    with pytest.raises(AssertionError):
        check()
