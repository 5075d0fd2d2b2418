"""A test suite for any parser of tool calls in text.

It finds leaks of call text into the visible text, lost text and calls, and false calls: something is executed that is
no call. `cases` makes the cases, `run` runs a parser on them, and `table` shows the results. `python -m conformance`
does all three. A parser is a function, a command, or a server.

>>> def parse(deltas, dialect, tools):
...     return {"text": "".join(deltas), "calls": []}
>>> first = next(run(function(parse), cases(["hermes_json"])))
>>> first.case.rule, sorted(first.kinds)
('one call', ['leak', 'lost call'])
"""

from __future__ import annotations

from conformance.cases import (
    FAULTS,
    Case,
    Cut,
    Outcome,
    Reported,
    WrittenCall,
    deltas,
    judge,
    read_lines,
    schema,
    to_line,
)
from conformance.construction import cases
from conformance.scores import CUTS, Result, Score, run, table
from conformance.subjects import Command, Parse, Server, Subject, function, ours

__all__ = [
    "CUTS", "FAULTS", "Case", "Command", "Cut", "Outcome", "Parse", "Reported", "Result", "Score", "Server", "Subject",
    "WrittenCall", "cases", "deltas", "function", "judge", "ours", "read_lines", "run", "schema", "table", "to_line",
]  # fmt: skip
