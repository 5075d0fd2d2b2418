"""Tools: what a model may call, and the calling of it.

In the order of the way: a function becomes a `Tool` (definition), tools are offered by name (registry), a request says
which may be called (choice), calls are run (invocation, runner), and leave outcomes.
"""

from streamtools.tools.choice import ToolChoice
from streamtools.tools.definition import Tool, tool
from streamtools.tools.outcome import ToolError, ToolOutcome, ToolResult
from streamtools.tools.registry import ToolRegistry, ToolsLike
from streamtools.tools.runner import Runner

__all__ = [
    "Runner",
    "Tool",
    "ToolChoice",
    "ToolError",
    "ToolOutcome",
    "ToolRegistry",
    "ToolResult",
    "ToolsLike",
    "tool",
]
