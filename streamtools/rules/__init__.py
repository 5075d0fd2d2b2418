"""Rules on the text that a reader sees: `text_rules=[rules.email(), rules.replace("secret", "…"), rules.stop("END")]`.

A rule finds its matches however the text is cut, and says what becomes of them: another text is shown, none is, an
event tells of them, or the answer ends there. What may become a match is held back until that is certain, and nothing
else is.
"""

from __future__ import annotations

from streamtools.rules.matcher import shown
from streamtools.rules.ready_made import citations, credit_card, email, iban, keys, phone, urls
from streamtools.rules.rule import Action, Rule, fail, mark, remove, replace, stop

__all__ = [
    "Action", "Rule", "citations", "credit_card", "email", "fail", "iban", "keys", "mark", "phone", "remove", "replace",
    "shown", "stop", "urls",
]  # fmt: skip
