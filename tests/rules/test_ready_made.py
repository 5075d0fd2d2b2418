"""Tests of the ready-made rules."""

from __future__ import annotations

from streamtools import rules
from streamtools.rules import Rule, shown
from tests.support.cases import together

ALL: list[Rule] = [
    rules.email(), rules.phone(), rules.iban(), rules.credit_card(), rules.keys(),
    rules.urls(allow=["example.com"]),
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
}  # fmt: skip
LEFT = [
    "bob@home", "a@b@", "@bob", "1.2.3.4", "12345", "2024-12-31", "DE88370400440532013", "in 2019 12 31",
    "Task-force sk-short", "askew-abcdefghijklmnop", "AKIAB", "hf_hub_download", "eyJhbGciOiJIUzI1NiJ9",
    "https://example.com/a?b=c", "https://www.example.com", "http://EXAMPLE.com:80/", "a//b", "https:", "[a]", "[1](x)",
    "【】", "[1]: x", "bearer of news", "01.02.2024", "01/02/2024", "01-02-2024", "3.0123456789", "a/0123456789/b",
    "1b4e28ba-0123-4567-89ab-00504fc2ee0e", "100 200 3000", "192.168.100.1234", "10,0123456789", "08:15:30",
]  # fmt: skip


@together(("name", "text"), [(name, text) for name, each in FOUND.items() for text in each])
@together("around", ["{}", "see {}, or", "({})", "\n{}\n"])
def test_text_with_the_format_is_found(name: str, text: str, around: str) -> None:
    """Alone, and between other words."""
    assert around.format(f"[{name}]") == shown(ALL, around.format(text))


REAL = r"""
email  | BOB@X.ORG | o'brien@x.org | mailto:[email] => mailto:bob@x.org | **[email]** => **bob@x.org**
email  | 请联系[email]或者 => 请联系bob@x.org或者 | 用户@例子.中国 | bob@xn--bcher-kva.de | bob@x.xn--p1ai
email  | [email],[email] => bob@x.org,amy@y.org | mail~[email]~now => mail~bob@x.org~now | [email]로 => bob@x.org로
phone  | +49~151~2345678 | +33~1~23~45~67~89 | +1 (415) 555-2671 | tel:[phone] => tel:+14155552671 | +44 (0)20 7946 0958
phone  | 020 7946 0958 | +81-3-1234-5678 | 03-1234-5678 | 090-1234-5678 | 06 12 34 56 78 | 0171/1234567 | +49^151^2345678
phone  | (11) 91234-5678 | +55 (11) 91234-5678 | 0800 123 4567 | (415)555-2671 | 1-800-555-2671
iban   | de89370400440532013000 | de89 3704 0044 0532 0130 00 | DE89~3704~0044~0532~0130~00 | NO93 8601 1117 947
iban   | DE89-3704-0044-0532-0130-00 | FR14 2004 1010 0505 0001 3M02 606 | iban=[iban]& => iban=DE89370400440532013000&
iban   | [iban] is mine => DE89 3704 0044 0532 0130 00 is mine | MT84 MALT 0110 0001 2345 MTLC AST0 01S
card   | 4111~1111~1111~1111 | 4111.1111.1111.1111 | 4111^1111^1111^1111 | 3782 822463 10005 | 3530111333300000
card   | [card] 12/27 123 => 4111 1111 1111 1111 12/27 123 | 1: [card] => 1: 6011-1111-1111-1117
key    | A_KEY=[key] => A_KEY=ghp_a1b2a1b2a1b2a1b2a1b2a1b2 | whsec_a1b2a1b2a1b2a1b2a1b2 | dckr_pat_a1b2a1b2a1b2a1b2a1b2
key    | SG.a1b2a1b2a1b2a1b2a1b2ab.a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2abc | shpat_a1b2a1b2a1b2a1b2a1b2a1b2a1b2a1b2
link   | https:evil.org | https:/evil.org/x | https:///evil.org | HTTP:EVIL.ORG | //evil.org/a | www.evil.org | //2130706433/
link   | ![x]([link]) => ![x](https:evil.org/a) | ![x]([link]) => ![x](//evil.org/a) | ![x]([link]) => ![x](/\evil.org/a)
link   | [a]: [link] => [a]: https://evil.org/a | <img src=[link]> => <img src=//evil.org/a> | url([link]) => url(//evil.org/a)
link   | ![x](<[link] b>) => ![x](<https://evil.org/a b>) | https://example.com&#64;evil.org | https://evil.org&sol;.example.com
link   | https://evil.org#example.com | ![x](https&colon;[link]) => ![x](https&colon;//evil.org) | https:example.com@evil.org
       | https:example.com/a | //example.com/a | http://EXAMPLE.com. | https://example.com/?a&amp;b | https://www.example.com/(a)
       | x == y //TODO: this | //comment | a & b \\hline | \\server\share | private http:Client | http: see | https:// | 5 // 2
       | 3.141592653589793 | 1700000000000 | 9783161484100 | 978 3 16 148410 0 | 1 2 3 4 5 6 7 8 9 10 11 12 13 | 192.168.0.1
       | 2024-12-31T08:15:30Z | 2001:0db8:85a3:0000:0000:8a2e:0370:7334 | 00:1B:44:11:3A:B7 | $0123456 | 12 345 678
       | @decorator | user@localhost | react@18.2.0 | x = y @ z.T | at 12 we met, in 2024 we had a party | mp3 and h264 | DE12 34
       | sk-learn | skeleton-key-abcdefghijklmnop | pypi-server-for-internal-packages-only | commit 0123456789abcdef
"""  # noqa: E501  # each line is a text
"""What stands in texts, by the rule that finds all of it; before `=>`, what is shown where that is a part of it."""


def test_text_is_found_in_all_spellings() -> None:
    """With no-break spaces and hyphens (here `~` and `^`), in lower case, and as browsers read it."""
    cases = []
    for line in REAL.strip("\n").translate({126: "\u00a0", 94: "\u2011"}).splitlines():
        name, *each = map(str.strip, line.split(" | "))
        for case in each:
            expected, _, text = case.rpartition(" => ")
            cases.append((text, expected or (f"[{name}]" if name else text)))
    assert len(cases) > 100
    assert [case for case in cases if shown(ALL, case[0]) != case[1]] == []


@together("text", LEFT)
def test_similar_text_is_not_found(text: str) -> None:
    """Almost the format, or wrong check digits."""
    assert text == shown(ALL, text)


def test_a_match_is_replaced_by_text_or_by_a_function() -> None:
    text = "mail bob@x.org"
    assert "mail b…" == shown([rules.email(by=lambda match: match[0] + "…")], text)
    assert "mail " == shown([rules.email("remove")], text)
    assert "mail @" == shown([rules.replace("bob@x.org", "@"), rules.email()], text)


def test_each_rule_states_its_maximum_of_pending_text() -> None:
    """For a literal, one less than its length."""
    assert 5 == rules.replace("secret", "…").holds
    assert all(0 < rule.holds < 2000 for rule in ALL)
