"""Rules on the text that a reader sees: `text_rules=[rules.email(), rules.replace("secret", "…"), rules.stop("END")]`.

A rule finds its matches for every cut of the text. Its action decides: the match is replaced or removed, reported by an
event, or it ends the turn. Only text that may still become a match is pending.
"""

from __future__ import annotations

from streamtools.rules.matcher import shown
from streamtools.rules.ready_made import citations, credit_card, email, iban, keys, phone, urls
from streamtools.rules.rule import Action, Rule, fail, mark, remove, replace, stop

__all__ = [
    "Action", "Rule", "citations", "credit_card", "email", "fail", "iban", "keys", "mark", "phone", "remove", "replace",
    "shown", "stop", "urls",
]  # fmt: skip
