"""Tools: what a model may call, and the calling of it.

In the order of the way: a function becomes a `Tool` (definition), tools are offered by name (registry), a request says
which may be called (choice), calls are asked about (permissions, decisions, decider) and run (invocation, runner)
within bounds (guards), at most once (ledger), and leave outcomes.
"""

from streamtools.tools.choice import ToolChoice
from streamtools.tools.context import ToolContext
from streamtools.tools.decisions import Answer, Approve, Decidable, Decision, Deny, Question
from streamtools.tools.definition import Tool, ToolOptions, tool
from streamtools.tools.extending import extend_messages
from streamtools.tools.guards import Guards, Watch
from streamtools.tools.ledger import CallLedger, Entry, MemoryLedger, SQLiteLedger
from streamtools.tools.outcome import ToolError, ToolOutcome, ToolResult
from streamtools.tools.registry import ToolRegistry, ToolsLike
from streamtools.tools.runner import OnToolResult, Runner
from streamtools.tools.suspension import Suspension

__all__ = [
    "Answer",
    "Approve",
    "CallLedger",
    "Decidable",
    "Decision",
    "Deny",
    "Entry",
    "Guards",
    "MemoryLedger",
    "OnToolResult",
    "Question",
    "Runner",
    "SQLiteLedger",
    "Suspension",
    "Tool",
    "ToolChoice",
    "ToolContext",
    "ToolError",
    "ToolOptions",
    "ToolOutcome",
    "ToolRegistry",
    "ToolResult",
    "ToolsLike",
    "Watch",
    "extend_messages",
    "tool",
]
