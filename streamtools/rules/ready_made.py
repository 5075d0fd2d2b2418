"""Rules that are there already: what is personal, what is secret, where a picture may not be loaded from, and what
providers write into a text to cite.

They find what has the form of a thing, and where the thing has a check digit only what passes that. None is a promise:
a name, an address, or a number that is written out has no form.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from streamtools.rules.key_formats import FORMATS, LONGEST
from streamtools.rules.rule import Action, Rule

By = str | Callable[[str], str]

_EMAIL = re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}")
_BEFORE_PHONE = r"(?<![\w+.,/-])"  # decimals, paths, and the ids that have hyphens are none
_PHONES = [
    re.compile(rf"{_BEFORE_PHONE}(?:\+|00)[1-9](?:[ ./-]{{0,2}}(?:\d|\(\d{{1,4}}\))){{6,14}}(?!\w)"),
    # Dates have two points, slashes or hyphens, and eight digits.
    re.compile(rf"{_BEFORE_PHONE}(?:\(0[1-9]\d{{0,5}}\)|0[1-9]\d{{0,5}})[ -]?/?[ -]?\d(?: ?\d){{4,10}}(?!\w)"),
    re.compile(rf"{_BEFORE_PHONE}0[1-9](?:[.-]\d{{2}}){{4}}(?!\w)"),
    re.compile(rf"{_BEFORE_PHONE}(?:1[-. ])?(?:\([2-9]\d{{2}}\) ?|[2-9]\d{{2}}[-. ])[2-9]\d{{2}}[-. ]\d{{4}}(?!\w)"),
]
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?![A-Za-z0-9])")
_CARD = re.compile(r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)")

# The characters of a URL, where a text or its Markdown does not end it, and those with which one ends. Browsers read
# `\` as `/`, and `//host` anywhere in the place of an address.
_IN_URL = r"[^\s<>\"`)\]]"
_ENDS_URL = r"[^\s<>\"`)\],;!?']"
_URL_BEGINS = r"(?:(?:https?|ftp|wss?):|(?<=[(\"'=\s<:]))[/\\]{2}"
_LONGEST_URL = 1024
_URLS = [
    re.compile(rf"{_URL_BEGINS}{_IN_URL}{{0,{_LONGEST_URL}}}{_ENDS_URL}(?!{_ENDS_URL})", re.IGNORECASE),
    re.compile(rf"{_URL_BEGINS}{_IN_URL}{{{_LONGEST_URL}}}", re.IGNORECASE),
]
_HOST = re.compile(r"(?:[A-Za-z]{1,5}:)?[/\\]{2}([^/\\?#]*)")

_CITATIONS = {
    "openai_file": r"【\d{1,4}(?::\d{1,4})?†[^】\n]{1,256}】",  # Assistants and file search
    "openai_web": "\ue200[^\ue200\ue201]{1,256}\ue201",  # in characters for private use
    "gemini": r"\[cite_(?:start|end)\]|\[cite: ?\d{1,4}(?:, ?\d{1,4}){0,15}\]",
    "cohere": r"</?co(?:: ?\d{1,4}(?:, ?\d{1,4}){0,15})?>",
    "numbered": r"\[\d{1,3}\](?![(:])",  # Perplexity; with what follows it, it is Markdown
}
_NUMBERS = re.compile(r"\d+")


def _rule(name: str, what: list[re.Pattern[str]], action: Action, by: By, **more: Any) -> Rule:
    return Rule(name=name, what=what, action=action, by=by, **more)


def email(action: Action = "replace", *, by: By = "[email]") -> Rule:
    """Return a rule for e-mail addresses. Any word may begin one, so each is shown when it is complete."""
    return _rule("email", [_EMAIL], action, by)


def phone(action: Action = "replace", *, by: By = "[phone]") -> Rule:
    """Return a rule for telephone numbers: international ones, national ones that begin with 0, and North American."""
    return _rule("phone", _PHONES, action, by)


def iban(action: Action = "replace", *, by: By = "[iban]") -> Rule:
    """Return a rule for international bank account numbers (ISO 13616) whose check digits are right."""
    return _rule("iban", [_IBAN], action, by, check=is_iban)


def credit_card(action: Action = "replace", *, by: By = "[card]") -> Rule:
    """Return a rule for the numbers of payment cards (ISO/IEC 7812), of 13 to 19 digits, whose last digit is right."""
    return _rule("credit_card", [_CARD], action, by, check=is_card)


def keys(action: Action = "replace", *, by: By = "[key]") -> Rule:
    """Return a rule for keys of known formats, those that recordings are cleared of."""
    groups: dict[tuple[str, int], list[str]] = {}
    for more, least, prefixes in FORMATS:
        groups.setdefault((more, least), []).extend(prefixes)
    begins = "(?<![A-Za-z0-9_-])"
    what = [
        re.compile(rf"{begins}(?:{'|'.join(prefixes)}){more}{{{least},{LONGEST}}}")
        for (more, least), prefixes in groups.items()
    ]
    part = "[A-Za-z0-9_-]"
    jwt = rf"{begins}eyJ{part}{{8,{LONGEST}}}\.{part}{{8,{4 * LONGEST}}}(?:\.{part}{{0,{2 * LONGEST}}})?"
    bearer = rf"{begins}(?:[Bb]earer|BEARER) [A-Za-z0-9._~+/=-]{{16,{LONGEST}}}"
    return _rule("keys", [*what, re.compile(jwt), re.compile(bearer)], action, by)


def urls(*, allow: Iterable[str] = (), action: Action = "replace", by: By = "[link]") -> Rule:
    """Return a rule for URLs of other hosts than those of `allow` and theirs below: `example.com` is
    `www.example.com`, too.

    A page that shows a picture asks for it, and so tells its host whatever the model has put into the address. A URL of
    more than 1,024 characters is cut there, which leaves what follows as text.
    """
    hosts = frozenset(each.lower().strip(".") for each in ([allow] if isinstance(allow, str) else allow))

    def is_other(url: str) -> bool:
        found = _HOST.match(url)
        host = found[1].rpartition("@")[2].partition(":")[0].lower().strip(".") if found else ""
        labels = host.split(".")
        return not any(".".join(labels[at:]) in hosts for at in range(len(labels)))

    return _rule("urls", _URLS, action, by, check=is_other if hosts else None)


def citations(action: Action = "mark", *, by: By = "", forms: Iterable[str] = tuple(_CITATIONS)) -> Rule:
    """Return a rule for the marks with which providers cite: `openai_file`, `openai_web`, `gemini`, `cohere` and
    `numbered`. The `fields` of a match are its `form` and the `numbers` in it. Raises ValueError for another form.
    """
    chosen = tuple(forms)
    for form in chosen:
        if form not in _CITATIONS:
            raise ValueError(f"{form!r} is no form of citation; there are {', '.join(_CITATIONS)}")

    def fields(match: str) -> Mapping[str, Any]:
        form = next((form for form in chosen if re.fullmatch(_CITATIONS[form], match)), None)
        return {"form": form, "numbers": [int(each) for each in _NUMBERS.findall(match)]}

    what = [re.compile(_CITATIONS[form]) for form in chosen]
    return _rule("citations", what, action, by, fields=fields)


def is_iban(text: str) -> bool:
    """Return whether the check digits of an account number are right (ISO 7064, MOD 97-10)."""
    number = text.replace(" ", "")
    return int("".join(str(int(each, 36)) for each in number[4:] + number[:4])) % 97 == 1


def is_card(text: str) -> bool:
    """Return whether the last digit of a number is right (ISO/IEC 7812-1, the formula of Luhn)."""
    digits = [int(each) for each in text if each.isdigit()]
    doubled = (each * 2 - 9 * (each > 4) for each in digits[-2::-2])
    return any(digits) and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
