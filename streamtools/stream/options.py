"""The options of a `ToolStream`: their types, for those that pass them on, and what is checked of their values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from streamtools.calls import ToolChoice
from streamtools.errors import check_names, check_word
from streamtools.parsing.dialects import Dialects
from streamtools.parsing.policies import ParserOptions
from streamtools.tools.decisions import Decision
from streamtools.tools.guards import Guards, GuardTracker
from streamtools.tools.ledger import CallLedger
from streamtools.tools.runner import OnToolError, OnToolResult
from streamtools.tools.suspension import Suspension

if TYPE_CHECKING:
    from streamtools.stream.judging import TextJudge


class StreamOptions(ParserOptions, total=False):
    """The parameters of `ToolStream` but for its source and its tools, for those that pass them on."""

    dialects: Dialects
    execute: Literal["completed", "eager", "never"]
    tool_choice: ToolChoice | str | Mapping[str, Any] | None
    on_tool_result: OnToolResult | None
    on_tool_error: OnToolError | None
    native_tool_calls: bool | None
    self_contained: bool
    concurrency: int
    tool_timeout: float
    tool_state: Any
    result_limit: int | None
    guards: Guards | GuardTracker | None
    ask: Literal["later", "now"]
    decision_timeout: float | None
    resume: Suspension | str | None
    decisions: Mapping[str, Decision | bool] | None
    ledger: CallLedger | None
    run_id: str | None
    output: Any
    text_judge: TextJudge | None
    rules_in_arguments: bool


def check_options(
    options: Mapping[str, object],
    *,
    concurrency: int,
    result_limit: int | None,
    tool_timeout: float,
    on_tool_result: object,
    on_tool_error: object,
    ask: str,
    decision_timeout: float | None,
    text_judge: TextJudge | None,
    execute: str,
) -> None:
    """Raise ValueError for a value that is not allowed, TypeError for a parameter that there is not."""
    check_names("ToolStream()", options, StreamOptions.__annotations__)
    if not (isinstance(concurrency, int) and concurrency >= 1):
        raise ValueError(f"concurrency is a number of at least 1, not {concurrency!r}")
    if result_limit is not None and not (isinstance(result_limit, int) and result_limit >= 1):
        raise ValueError(f"result_limit is a number of at least 1, or None, not {result_limit!r}")
    if not (isinstance(tool_timeout, int | float) and tool_timeout > 0):
        raise ValueError(f"tool_timeout is a positive number of seconds, not {tool_timeout!r}")
    for name, function in (("on_tool_result", on_tool_result), ("on_tool_error", on_tool_error)):
        if not (function is None or callable(function)):
            raise ValueError(f"{name} is a function, not {function!r}")
    check_word("ask", ask, ("later", "now"))
    if decision_timeout is not None and not decision_timeout > 0:
        raise ValueError(f"decision_timeout is a positive number of seconds, not {decision_timeout!r}")
    if text_judge is None:
        return
    from streamtools.stream.judging import TextJudge  # loaded when it is used

    if not isinstance(text_judge, TextJudge):
        raise ValueError(f"text_judge is a TextJudge, not {text_judge!r}")
    if execute == "eager":
        raise ValueError(
            "text_judge: calls of a turn that is refused do not run, so none runs before (execute='eager')"
        )
