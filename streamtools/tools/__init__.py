"""Defines tools, decides which of their calls may run, and executes the calls.

- The module `tool` makes a `Tool` of a function. It uses `functions`, `signature` and `schemas` to inspect the
  function.
- `registry` holds tools by name. `definitions` converts them to the request format of each provider. `mcp` makes tools
  of the tools of an MCP server.
- `tool_choice`, `guards` and `approvals` decide which calls run.
- `runner` executes calls. It uses `invocation` and `context`, and returns outcomes, which `results` defines.
- `ledger` defines the protocol of ledgers, and prevents calls from running twice. The modules named `…_ledger`
  implement the protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamtools.calls import ToolChoice
from streamtools.loading import load_later
from streamtools.tools.approvals import Answer, Approve, Decidable, Decision, Deny, Question, Suspension, parse_decision
from streamtools.tools.context import ToolContext
from streamtools.tools.guards import Guards
from streamtools.tools.ledger import CallLedger, Claim, Entry
from streamtools.tools.registry import ToolRegistry
from streamtools.tools.results import ToolError, ToolOutcome, ToolResult
from streamtools.tools.tool import Tool, ToolOptions, tool

if TYPE_CHECKING:
    from streamtools.tools.postgres_ledger import PostgresLedger
    from streamtools.tools.redis_ledger import RedisLedger
    from streamtools.tools.sql_ledger import MemoryLedger, SQLiteLedger

__all__ = [
    "Answer", "Approve", "CallLedger", "Claim", "Decidable", "Decision", "Deny", "Entry", "Guards", "MemoryLedger",
    "PostgresLedger", "Question", "RedisLedger", "SQLiteLedger", "Suspension", "Tool", "ToolChoice", "ToolContext",
    "ToolError", "ToolOptions", "ToolOutcome", "ToolRegistry", "ToolResult", "parse_decision", "tool",
]  # fmt: skip

_LAZY = {
    **dict.fromkeys(("MemoryLedger", "SQLiteLedger"), "sql_ledger"),
    "PostgresLedger": "postgres_ledger",
    "RedisLedger": "redis_ledger",
}
"""Maps each name that is imported on first use to its module. Few programs need these names, and one needs an extra."""

load_later(globals(), _LAZY, PostgresLedger="psycopg")
