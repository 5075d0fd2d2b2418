"""Ready-made rules for personal data, API keys, and links to other hosts.

The rules find text by its format, and verify check digits if the format has them. They do not find text without a fixed
format, such as a name, a postal address, or a number in words.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable

from streamtools.rules.key_formats import FORMATS, LONGEST
from streamtools.rules.rule import Action, Rule

Replacement = str | Callable[[str], str]
"""The text that replaces a match, or a function that receives the match and returns this text."""

_SPACE = r"[ \u00a0\u2007\u2009\u202f]"  # a space, a no-break space or a narrow space
_HYPHEN = r"[-\u2010-\u2013\u2212]"
# Between two digits of a number: nothing, or up to two spaces, points, slashes, hyphens or underscores.
_BETWEEN = r"[ \u00a0\u2007\u2009\u202f./\u2010-\u2013\u2212_-]{0,2}"

# Letters of scripts without spaces, and of Korean, in which particles directly follow a word. A word in such a script
# may stand directly before or after an e-mail address.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD_CHARACTER = rf"[^\W{_UNSPACED}]"
_LOCAL = rf"(?:{_WORD_CHARACTER}|[.+%-])"
_AT = "[@\uff20]"
_EMAILS = [
    re.compile(  # jane@example.com, o'neil@example.com
        rf"(?<![.+%-])(?<!{_WORD_CHARACTER}){_LOCAL}{{1,64}}(?:['\u2019]{_LOCAL}{{1,64}})?"
        rf"{_AT}(?:(?:{_WORD_CHARACTER}|-){{1,63}}\.){{1,8}}(?:xn--[a-z0-9-]{{1,59}}|[^\W\d_{_UNSPACED}]{{2,24}})"
    ),
    # An address with a letter of a script without spaces directly before the `@`.
    re.compile(rf"(?<![\w.+%-])[\w.+%-]{{0,63}}[{_UNSPACED}]{_AT}(?:[\w-]{{1,63}}\.){{1,8}}[^\W\d_]{{2,24}}"),
]
_BEFORE_PHONE = r"(?<![\w+.,/$-])"  # excludes amounts, decimals, paths, and ids with hyphens
_PHONES = [
    # +49 30 1234567
    re.compile(rf"{_BEFORE_PHONE}(?:\+|00)[1-9](?:{_BETWEEN}(?:\d|\(\d{{1,4}}\))){{6,14}}(?!\w)"),
    # 030 1234567 or (030) 1234567. Only the area code may be followed by a hyphen or a slash. So 01-02-2024 does not
    # match, but 01 02 2024 does.
    re.compile(
        rf"{_BEFORE_PHONE}(?:\(0[1-9]\d{{0,5}}\)|0[1-9]\d{{0,5}})"
        rf"(?:{_SPACE}|{_HYPHEN})?/?(?:{_SPACE}|{_HYPHEN})?\d(?:{_SPACE}?\d){{4,10}}(?!\w)"
    ),
    # 01.23.45.67.89
    re.compile(rf"{_BEFORE_PHONE}0[1-9](?:[.-]\d{{2}}){{4}}(?!\w)"),
    # 03-1234-5678
    re.compile(rf"{_BEFORE_PHONE}(?:0[1-9]{_HYPHEN}\d{{3,4}}|0[1-9]\d{{1,3}}{_HYPHEN}\d{{2,4}}){_HYPHEN}\d{{4}}(?!\w)"),
    re.compile(  # (415) 555-2671 or 1-415-555-2671
        rf"{_BEFORE_PHONE}(?:1(?:{_SPACE}|{_HYPHEN}|\.))?(?:\([2-9]\d{{2}}\){_SPACE}?|[2-9]\d{{2}}(?:{_SPACE}|{_HYPHEN}|\.))"
        rf"[2-9]\d{{2}}(?:{_SPACE}|{_HYPHEN}|\.)\d{{4}}(?!\w)"
    ),
    # (11) 91234-5678
    re.compile(rf"{_BEFORE_PHONE}\([1-9]\d\){_SPACE}?\d{{4,5}}{_HYPHEN}\d{{4}}(?!\w)"),
]
# DE89 3704 0044 0532 0130 00
_IBAN = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}\d{{2}}(?:{_BETWEEN}[A-Za-z0-9]){{11,30}}(?![A-Za-z0-9])")
# The countries with international bank account numbers, and the length of the number (registry of ISO 13616).
_IBAN_LENGTHS = {
    entry[:2]: int(entry[2:])
    for entry in (  # noqa: SIM905  # a table
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
        "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
        "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
        "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
        "YE30"
    ).split()
}
# 4111 1111 1111 1111
_CARD = re.compile(rf"(?<!\d)\d{{4}}(?:{_BETWEEN}\d){{9,15}}(?!\d)")
# The first digits and the lengths of card numbers. 4: Visa. 34, 37: American Express. 30, 36, 38, 39: Diners. 35: JCB.
# 51 to 55: Mastercard. 22 to 27: Mastercard, Mir. 50, 56 to 58: Maestro. 6: Maestro, Discover, UnionPay, RuPay.
# 81, 82: UnionPay, RuPay.
_CARD_NETWORKS = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|3[47]\d{13}|3[0689]\d{12,17}|35\d{14,17}|5[1-5]\d{14}|2[2-7]\d{14,17}"
    r"|(?:5[06-8]|6\d)\d{11,17}|8[12]\d{14}"
)

# The characters within a URL, and the possible last characters of a URL, in text or Markdown. Browsers read `\` as `/`,
# accept any number of slashes after `https:`, and accept `//host` as an address. Markdown and HTML decode entities.
_IN_URL = r"[^\s<>\"`)\]]"
_ENDS_URL = r"[^\s<>\"`)\],;!?']"
_SLASH = r"(?:[/\\]|&(?:b?sol|#0{0,6}(?:47|92)|#x0{0,6}(?:2f|5c));)"
# The first part of a host, and the point or `@` after it. Because this character is required, `// comment` and LaTeX's
# `\\` do not match.
_LABEL = r"[\w%@:-]{1,64}[.@\u3002\uff0e\uff61]"
# Finds the beginning of a URL, in one of these forms:
# - `https://`, also with `http`, `ftp`, `ws` or `wss`
# - `https:host.` or `https:/host.`, also with `http`
# - `www.`
# - `//` directly after one of `"`, `'`, `(`, `=` and `<`
# - `//host.`, or `//` and a digit, at the start or after white space, `:` or `;`
_URL_BEGINS = (
    rf"(?:(?:https?|ftp|wss?):{_SLASH}{{2}}|https?:{_SLASH}?{_LABEL}|(?<![\w.@/-])www\."
    rf"|(?<=[(\"'=<]){_SLASH}{{2}}|(?<![^\s:;]){_SLASH}{{2}}(?:\d|{_LABEL}))"
)
_LONGEST_URL = 1024
_URLS = [
    re.compile(rf"{_URL_BEGINS}{_IN_URL}{{0,{_LONGEST_URL}}}{_ENDS_URL}(?!{_ENDS_URL})", re.IGNORECASE),
    re.compile(rf"{_URL_BEGINS}{_IN_URL}{{{_LONGEST_URL}}}", re.IGNORECASE),
]
# Group 1 is the host, maybe with a user and a port: "https://user@host:80/path".
_HOST = re.compile(r"(?:[A-Za-z]{1,5}:)?[/\\]*([^/\\?#]*)")


def email(action: Action = "replace", *, by: Replacement = "[email]") -> Rule:
    """Return a rule for e-mail addresses. Every word may begin an address, so each word is pending until it ends."""
    return Rule(name="email", what=_EMAILS, action=action, by=by)


def phone(action: Action = "replace", *, by: Replacement = "[phone]") -> Rule:
    """Return a rule for telephone numbers: international, national with a leading 0, North American and Brazilian."""
    return Rule(name="phone", what=_PHONES, action=action, by=by)


def iban(action: Action = "replace", *, by: Replacement = "[iban]") -> Rule:
    """Return a rule for international bank account numbers (ISO 13616) with correct check digits."""
    return Rule(name="iban", what=[_IBAN], action=action, by=by, check=is_iban)


def credit_card(action: Action = "replace", *, by: Replacement = "[card]") -> Rule:
    """Return a rule for payment card numbers (ISO/IEC 7812) of 13 to 19 digits with a correct check digit."""
    return Rule(name="credit_card", what=[_CARD], action=action, by=by, check=is_card)


def keys(action: Action = "replace", *, by: Replacement = "[key]") -> Rule:
    """Return a rule for API keys of known formats. `streamtools.recording` redacts them, except SendGrid's."""
    groups: dict[str, list[str]] = {}  # maps the pattern of the text after a prefix to the prefixes
    for characters, minimum, prefixes in FORMATS:
        maximum = LONGEST if "_" in characters else LONGEST // 4
        groups.setdefault(f"{characters}{{{minimum},{maximum}}}", []).extend(prefixes)
    begins = "(?<![A-Za-z0-9_-])"
    what = [re.compile(f"{begins}(?:{'|'.join(prefixes)}){rest}") for rest, prefixes in groups.items()]
    part = "[A-Za-z0-9_-]"
    jwt = rf"{begins}eyJ{part}{{8,{LONGEST}}}\.{part}{{8,{4 * LONGEST}}}(?:\.{part}{{0,{2 * LONGEST}}})?"
    bearer = rf"{begins}(?:[Bb]earer|BEARER) [A-Za-z0-9._~+/=-]{{16,{LONGEST}}}"
    sendgrid = rf"{begins}SG\.{part}{{16,32}}\.{part}{{30,64}}"
    what += map(re.compile, (jwt, bearer, sendgrid))
    return Rule(name="keys", what=what, action=action, by=by)


def urls(*, allow: Iterable[str] = (), action: Action = "replace", by: Replacement = "[link]") -> Rule:
    """Return a rule for URLs whose host is not in `allow`. `example.com` also allows `www.example.com`.

    A page that shows a picture requests the URL of the picture. So the host receives all data that the model has put
    into the URL. The rule matches at most about 1,024 characters of a URL, and the rest of a longer URL is text.
    """
    hosts = frozenset(host.lower().strip(".") for host in ([allow] if isinstance(allow, str) else allow))

    def is_allowed(url: str) -> bool:
        found = _HOST.match(url)
        host = found[1].rpartition("@")[2].partition(":")[0].lower().strip(".") if found else ""
        labels = host.split(".")
        return any(".".join(labels[start:]) in hosts for start in range(len(labels)))

    def is_other(url: str) -> bool:
        return not (is_allowed(url) and is_allowed(html.unescape(url)))

    return Rule(name="urls", what=_URLS, action=action, by=by, check=is_other if hosts else None)


def is_iban(text: str) -> bool:
    """Return whether an account number has the right length for its country, and correct check digits (ISO 7064)."""
    number = "".join(character for character in text if character.isalnum()).upper()
    if _IBAN_LENGTHS.get(number[:2]) != len(number):
        return False
    return int("".join(str(int(character, 36)) for character in number[4:] + number[:4])) % 97 == 1


def is_card(text: str) -> bool:
    """Return whether a number has the format of a card network, and a correct check digit (ISO/IEC 7812-1, Luhn)."""
    digits = [int(character) for character in text if character.isdigit()]
    if not _CARD_NETWORKS.fullmatch("".join(map(str, digits))):
        return False
    doubled = (digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
