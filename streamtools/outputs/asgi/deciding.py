"""What a websocket's client says about the calls of the run that it reads: that they may run or not, and their results.

A result is for the run itself if the call is one that the front end carries out, and else for the tool of ours that
waits in `Session.tool_result`.
"""

from __future__ import annotations

from streamtools.errors import DecisionRefused
from streamtools.outputs.asgi.frames import ApprovalFrame, RefusedFrame, ResultFrame
from streamtools.runs.mailbox import Mailbox
from streamtools.tools.decisions import Approve, Decidable, Deny


def decide(said: ApprovalFrame, decidable: Decidable | None) -> None:
    """Approve or deny a call. Raises `RefusedFrame` if nothing waits for this."""
    call_id = said.call_id
    try:
        if decidable is None:
            raise DecisionRefused(f"call {call_id!r} waits for no decision: there is nothing that asks")
        decidable.decide(call_id, Approve(said.digest) if said.approved else Deny(said.reason))
    except DecisionRefused as error:
        raise RefusedFrame("decision_refused", str(error), call_id) from None


def hand_over(said: ResultFrame, decidable: Decidable | None, mailbox: Mailbox | None) -> None:
    """Give a call its result, or what went wrong. Raises `RefusedFrame` if none waits for it."""
    call_id = said.call_id
    if decidable is not None and any(each.call.id == call_id and not each.approval for each in decidable.questions):
        assert mailbox is not None
        decidable.answer(call_id, said.result, error=said.error)
        mailbox.close(call_id)
        return
    wrong: str | None = "no call of this id waits for a result"
    if mailbox is not None:
        wrong = mailbox.put(call_id, said.result, said.error)
    if wrong:
        raise RefusedFrame("unknown_call", f"{wrong}: {call_id}", call_id)
