"""Logging to the standard `logging` module, or to structlog if the application has configured it.

The loggers are children of the logger `streamtools`. A record holds names, codes, sizes and times, and never content.
If application code fails, the record also holds the traceback. This traceback has no local variables, no input values
in pydantic's error messages, and placeholders instead of the values of a vault.

This module does not configure logging. Without configuration, Python writes warnings and errors to standard error. The
values of a record are part of its message. They are also a dict in its attribute `streamtools`.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from pydantic_core import ValidationError as PydanticError

HIDE: ContextVar[Callable[[str], str] | None] = ContextVar("HIDE", default=None)
"""Replaces the values of the vault of the current run in a text. None without a vault.

An exception that another task logs has this function in its attribute `_hide`.
"""

_OWN = re.compile(re.escape(__file__.removesuffix("logs.py")) + "(?!serving)")
_LIBRARIES = {"pydantic", *sys.stdlib_module_names}
_LONGEST_REASON = 300
_QUOTED = re.compile(r"""'[^']*'?|"[^"]*"?""")
_STACK_LEVEL = 3  # the number of stack frames from `logging` to the caller of `Logger`


class Logger:
    """Logs the events of one module. Values of None are left out."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **values: Any) -> None:
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._write("warning", event, values)

    def error(self, event: str, error: BaseException | None = None, /, **values: Any) -> None:
        """Log an error. `error` is an exception of application code. It is logged with its traceback."""
        if error is not None:
            outer = HIDE.set(getattr(error, "_hide", getattr(error.__context__, "_hide", HIDE.get())))
            values |= loggable(error) | {"exc_info": without_inputs(error)}
            HIDE.reset(outer)
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        error = values.pop("exc_info", None)
        values = {name: value for name, value in values.items() if value is not None}
        structlog = sys.modules.get("structlog")  # saves the import, 14 ms, or 75 ms with rich
        if structlog is not None and structlog.is_configured():
            if error is not None:  # convert it here, because structlog's renderers may include local variables
                values["exception"] = "".join(traceback.format_exception(error)).rstrip()
            getattr(structlog.get_logger(self._name).bind(logger=self._name), level)(event, **values)
        elif self._logger.isEnabledFor(number := logging.getLevelNamesMapping()[level.upper()]):
            text = " ".join([event, *(f"{name}={value!r}" for name, value in values.items())])
            extra = {"streamtools": values}
            self._logger.log(number, "%s", text, exc_info=error, extra=extra, stacklevel=_STACK_LEVEL)


def loggable(error: BaseException) -> dict[str, str]:
    """Return the type of an exception and the line that raised it. Both are safe to log.

    For an exception group, this describes its first exception.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    # A `__getattr__` raises the error of the line that reads the attribute.
    frames = [each for each in traceback.walk_tb(error.__traceback__) if each[0].f_code.co_name != "__getattr__"]
    place = f"{frames[-1][0].f_code.co_filename}:{frames[-1][1]}" if frames else ""
    return {"error": type(error).__qualname__, "raised_at": place}


def explained(error: BaseException) -> dict[str, str]:
    """Return the type of a raised exception, its line in the application, and its message. All are safe to log.

    The line is the last one outside pydantic and the standard library. Quoted values are removed from the message,
    unless the function of this line contains them: a missing key of the application is shown. Messages of this package
    stay complete, because they quote only names. An exception that was raised in `serving` may come from a built-in
    function of the application, such as `int`, so its quoted values are removed.
    """
    for frame, number in traceback.walk_tb(error.__traceback__):  # the first frame is one of this package
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            code, line = frame.f_code, number
    if isinstance(error, PydanticError) or _OWN.match(loggable(error)["raised_at"]):
        reason = str(without_inputs(error))
    else:
        reason = _QUOTED.sub(lambda quoted: quoted[0] if quoted[0][1:-1] in code.co_consts else "…", str(error))
    reason = f"no key {reason}" if type(error) is KeyError else reason
    return loggable(error) | {"raised_at": f"{code.co_filename}:{line}", "reason": reason[:_LONGEST_REASON]}


def without_inputs(error: BaseException) -> BaseException:
    """Return `error`, or a copy without input values if its chain contains a pydantic ValidationError.

    In a run with a vault, the messages of the copy have placeholders.
    """
    chain: dict[int, BaseException] = {}
    remaining: list[BaseException | None] = [error]
    while remaining:
        linked = remaining.pop()
        if linked is not None and id(linked) not in chain:
            chain[id(linked)] = linked
            remaining += [linked.__cause__, linked.__context__, *getattr(linked, "exceptions", ())]
    if HIDE.get() is None and not any(isinstance(linked, PydanticError) for linked in chain.values()):
        return error
    copies: dict[int, BaseException] = {}
    for linked in reversed(chain.values()):  # copy the exceptions of a group before the group
        copies[id(linked)] = _copy(linked, copies).with_traceback(linked.__traceback__)
    for linked in chain.values():
        copied = copies[id(linked)]
        copied.__cause__, copied.__context__ = copies.get(id(linked.__cause__)), copies.get(id(linked.__context__))
        copied.__suppress_context__ = linked.__suppress_context__
    return copies[id(error)]


def _copy(error: BaseException, copies: dict[int, BaseException]) -> BaseException:
    hide = HIDE.get()
    if isinstance(error, BaseExceptionGroup):
        parts = [copies.get(id(part), part) for part in error.exceptions]
        return error.derive(parts) if hide is None else BaseExceptionGroup(hide(error.message), parts)
    if isinstance(error, PydanticError):
        error = ValidationError(error)
    if hide is not None:
        kind = type(error)
        names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
        hidden: BaseException = type(kind.__name__, (Exception,), names)(hide(str(error)))
        return hidden
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


def validation_errors(error: PydanticError) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the type and the message of each validation error, without the invalid value.

    Each part of a path is cut to 60 characters. Messages of validators in the application are not changed.
    """
    for detail in error.errors(include_url=False, include_input=False):
        message = detail["msg"]
        if detail["type"] == "union_tag_invalid":  # the only message of pydantic that contains the value
            message = f"{detail['ctx']['discriminator']} is none of {detail['ctx']['expected_tags']}"
        yield ".".join(str(part)[:60] for part in detail["loc"]), detail["type"], message


class ValidationError(ValueError):
    """A copy of pydantic's error without input values. Logs show it under the same name."""

    def __init__(self, error: PydanticError) -> None:
        lines = [f"{path}: {message} [{kind}]" for path, kind, message in validation_errors(error)]
        super().__init__("\n".join([f"Invalid input for {error.title}:", *lines]))
