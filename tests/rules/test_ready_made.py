"""Rules that are ready made: what they find, and what looks like it and is left."""

from __future__ import annotations

import pytest

from streamtools import rules
from streamtools.rules import Rule, shown

ALL: list[Rule] = [
    rules.email(), rules.phone(), rules.iban(), rules.credit_card(), rules.keys(),
    rules.urls(allow=["example.com"]), rules.citations("remove"),
]  # fmt: skip

FOUND = {
    "email": ["bob@x.org", "first.last+tag@mail.example.co.uk", "ünal@bücher.de", "a_b-c%d@x-y.museum"],
    "phone": ["+49 151 2345678", "+49 (0)30 123456", "0043-1-58858", "030/1234567", "(415) 555-2671", "415-555-2671",
        "01 23 45 67 89", "01.23.45.67.89", "0151 2345678", "(030) 1234567", "0151-2345678"],
    "iban": ["DE89 3704 0044 0532 0130 00", "GB29NWBK60161331926819", "CH9300762011623852957"],
    "card": ["4111 1111 1111 1111", "5500-0000-0000-0004", "340000000000009"],
    "key": [
        "sk-" + "a1B2" * 5, "sk-proj-" + "a_-b" * 30, "AKIA" + "ABCD1234" * 2, "ghp_" + "a1" * 18, "hf_" + "aB" * 17,
        "xoxb-123456789012", "Bearer " + "abc.def/" * 3,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
    ],
    "link": [
        "https://evil.org/?d=1", "HTTP://evil.org", "https://example.com@evil.org/", "https://example.com.evil.org",
        "https:\\\\evil.org", "https://evil.org\\@example.com", "https://notexample.com", "ws://evil.org/a",
        "https://evil.org/" + "a" * 900,
    ],
    "": ["【4:0†source】", "\ue200cite\ue202turn0search1\ue201", "[cite: 1, 22]", "[cite_start]", "<co: 1,2>", "[3]"],
}  # fmt: skip
LEFT = [
    "bob@home", "a@b@", "@bob", "1.2.3.4", "12345", "2024-12-31", "DE88370400440532013", "in 2019 12 31",
    "Task-force sk-short", "askew-abcdefghijklmnop", "AKIAB", "hf_hub_download", "eyJhbGciOiJIUzI1NiJ9",
    "https://example.com/a?b=c", "https://www.example.com", "http://EXAMPLE.com:80/", "a//b", "https:", "[a]", "[1](x)",
    "【】", "[1]: x", "bearer of news", "01.02.2024", "01/02/2024", "01-02-2024", "3.0123456789", "a/0123456789/b",
    "1b4e28ba-0123-4567-89ab-00504fc2ee0e", "100 200 3000", "192.168.100.1234", "10,0123456789", "08:15:30",
]  # fmt: skip


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, each in FOUND.items() for text in each])
@pytest.mark.parametrize("around", ["{}", "see {}, or", "({})", "\n{}\n"])
def test_what_has_the_form_is_found(name: str, text: str, around: str) -> None:
    """Alone, and between other words."""
    assert around.format(f"[{name}]" if name else "") == shown(ALL, around.format(text))


@pytest.mark.parametrize("text", LEFT)
def test_what_has_not_is_left(text: str) -> None:
    """What is nearly one, or has the wrong check digits."""
    assert text == shown(ALL, text)


def test_a_picture_is_not_asked_for() -> None:
    """Nor by an address without a scheme; what a page may load from is the application's to say."""
    text = "![x](//evil.org/a.png?d=secret) <img src='//evil.org/b'> ![y](https://cdn.example.com/c.png)"

    assert "![x]([link]) <img src='[link]'> ![y](https://cdn.example.com/c.png)" == shown(ALL, text)
    assert text.count("//") == shown([rules.urls()], text).count("[link]")


def test_what_becomes_of_a_match_is_free() -> None:
    """A function of the match, nothing, or another text."""
    text = "mail bob@x.org"

    assert "mail b…" == shown([rules.email(by=lambda match: match[0] + "…")], text)
    assert "mail " == shown([rules.email("remove")], text)
    assert "mail @" == shown([rules.replace("bob@x.org", "@"), rules.email()], text)


def test_each_rule_states_what_it_holds() -> None:
    """At most so many characters; a literal one less than it has."""
    assert 5 == rules.replace("secret", "…").holds
    assert all(0 < rule.holds < 2000 for rule in ALL)


def test_a_number_with_wrong_digits_is_left() -> None:
    """Of an account as of a card."""
    for text in ("DE88 3704 0044 0532 0130 00", "GB29 NWBK 6016 1331 9268 18"):
        assert text == shown([rules.iban()], text)
    assert "4111 1111 1111 1112" == shown([rules.credit_card()], "4111 1111 1111 1112")


def test_citations_tell_their_numbers() -> None:
    """And in whose form they are written."""
    rule = rules.citations()
    assert rule.fields is not None
    assert {"form": "openai_file", "numbers": [4, 0]} == rule.fields("【4:0†source】")
    with pytest.raises(ValueError, match="openai_web"):
        rules.citations(forms=["mla"])
