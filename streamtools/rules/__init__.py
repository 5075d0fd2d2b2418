"""Rules for the visible text of a model: `chat(…, text=TextOptions(rules=[rules.email(), rules.stop("END")]))`.

`parse` and `Parser` take them as `text_rules=[…]`.

A rule finds the same matches wherever the text is cut into deltas. The action of the rule defines what happens to a
match: it is replaced, removed, or reported by an event, or it ends the turn. Only text that may still become a match is
pending.
"""

from __future__ import annotations

from streamtools.loading import check_calls
from streamtools.rules.matcher import shown
from streamtools.rules.ready_made import credit_card, email, iban, keys, phone, urls
from streamtools.rules.rule import Action, Rule, fail, kind, mark, remove, replace, stop
from streamtools.rules.vault import Finder, Vault

__all__ = [
    "Action", "Finder", "Rule", "Vault", "credit_card", "email", "fail", "iban", "keys", "kind",
    "mark", "phone", "remove", "replace", "shown", "stop", "urls",
]  # fmt: skip

check_calls(globals())
