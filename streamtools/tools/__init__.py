"""Tools: what a model may call, and the calling of it.

In order: a function (`signature`, `descriptions`) becomes a `Tool` (`tool`), tools are offered by name
(`registry`, `mcp`), a request and its bounds say which calls may run (`call_rules`), somebody may have to allow them
(`approval`), and they run (`runner`, `invocation`) at most once (`ledger`, `memory_ledger`, `sql_ledger`,
`postgres_ledger`, `redis_ledger`) and leave outcomes (`call`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.calls import ToolChoice
from streamtools.loading import load_later
from streamtools.tools.approval import Answer, Approve, Decidable, Decision, Deny, Question, Suspension
from streamtools.tools.call import ToolContext, ToolError, ToolOutcome, ToolResult
from streamtools.tools.call_rules import Guards, Watch
from streamtools.tools.finished_responses import extend_messages
from streamtools.tools.ledger import CallLedger, Claim, Entry
from streamtools.tools.memory_ledger import MemoryLedger
from streamtools.tools.registry import ToolRegistry, ToolsLike
from streamtools.tools.runner import Runner
from streamtools.tools.tool import Tool, ToolOptions, tool

if TYPE_CHECKING:
    from streamtools.tools.postgres_ledger import PostgresLedger
    from streamtools.tools.redis_ledger import RedisLedger
    from streamtools.tools.sql_ledger import SQLiteLedger

__all__ = [
    "Answer", "Approve", "CallLedger", "Claim", "Decidable", "Decision", "Deny", "Entry", "Guards", "MemoryLedger",
    "PostgresLedger", "Question", "RedisLedger", "Runner", "SQLiteLedger", "Suspension", "Tool", "ToolChoice",
    "ToolContext", "ToolError", "ToolOptions", "ToolOutcome", "ToolRegistry", "ToolResult", "ToolsLike", "Watch",
    "extend_messages", "tool",
]  # fmt: skip

_LATER = {"PostgresLedger": "postgres_ledger", "RedisLedger": "redis_ledger", "SQLiteLedger": "sql_ledger"}
"""Loaded when they are used, as few use them, and two need extras."""

if not TYPE_CHECKING:  # to a type checker it would say that every name is there
    __getattr__, __dir__ = load_later(__name__, _LATER)
