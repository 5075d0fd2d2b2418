"""Logging: to the standard `logging` under `streamtools`, or to structlog if the application has configured it.

A record holds names, codes, sizes and times, and never content. If code of the application fails, the record holds the
traceback too, without locals and without the inputs that pydantic repeats in its messages.

This module configures nothing. Without configuration, Python writes warnings and errors to standard error. The values
of a record are in its message, and in its attribute `streamtools` as a dict.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import structlog
from pydantic_core import ValidationError

_STACK_LEVEL = 6  # frames from `logging` to the caller of `Logger`


class Logger:
    """The logger of a module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._logging = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[structlog.stdlib.filter_by_level, _to_logging],
            wrapper_class=structlog.stdlib.BoundLogger,
            context_class=dict,
        )

    def debug(self, event: str, **values: Any) -> None:
        self._write("debug", event, values)

    def info(self, event: str, **values: Any) -> None:
        self._write("info", event, values)

    def warning(self, event: str, **values: Any) -> None:
        self._write("warning", event, values)

    def error(self, event: str, error: BaseException | None = None, /, **values: Any) -> None:
        """Log an error. `error` is the exception of application code, which is logged with its traceback."""
        if error is not None:
            values |= loggable(error) | {"exc_info": without_inputs(error)}
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        logger = self._logging
        if structlog.is_configured():
            logger = structlog.get_logger(self._name).bind(logger=self._name)
            if "exc_info" in values:  # as text, because structlog's renderers may write locals
                values["exception"] = "".join(traceback.format_exception(values.pop("exc_info"))).rstrip()
        getattr(logger, level)(event, **values)


def _to_logging(logger: Any, level: str, values: structlog.typing.EventDict) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the arguments for `logging`. The last processor of structlog."""
    event, error = values.pop("event"), values.pop("exc_info", None)
    text = " ".join([event, *(f"{name}={value!r}" for name, value in values.items())])
    return ("%s", text), {"exc_info": error, "extra": {"streamtools": values}, "stacklevel": _STACK_LEVEL}


def loggable(error: BaseException) -> dict[str, str]:
    """Return the type of an exception and the line that raised it, which are safe to log.

    For a group, those of its first exception.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
    return {"error": type(error).__qualname__, "raised_at": place}


def without_inputs(error: BaseException) -> BaseException:
    """Return the exception, or a copy without inputs if its chain contains a validation error of pydantic."""
    chain: dict[int, BaseException] = {}
    remaining: list[BaseException | None] = [error]
    while remaining:
        linked = remaining.pop()
        if linked is not None and id(linked) not in chain:
            chain[id(linked)] = linked
            remaining += [linked.__cause__, linked.__context__, *getattr(linked, "exceptions", ())]
    if not any(isinstance(linked, ValidationError) for linked in chain.values()):
        return error
    copies: dict[int, BaseException] = {}
    for linked in reversed(chain.values()):  # members of a group before the group
        copies[id(linked)] = _copy(linked, copies).with_traceback(linked.__traceback__)
    for linked in chain.values():
        copied = copies[id(linked)]
        copied.__cause__, copied.__context__ = copies.get(id(linked.__cause__)), copies.get(id(linked.__context__))
        copied.__suppress_context__ = linked.__suppress_context__
    return copies[id(error)]


def _copy(error: BaseException, copies: dict[int, BaseException]) -> BaseException:
    if isinstance(error, ValidationError):
        return _InputlessValidationError(error)
    if isinstance(error, BaseExceptionGroup):
        return error.derive([copies.get(id(member), member) for member in error.exceptions])
    copied = type(error).__new__(type(error), *error.args)
    copied.__dict__.update(error.__dict__)
    return copied


class _InputlessValidationError(ValueError):
    """The errors that pydantic found, without the inputs. It is logged under pydantic's name."""

    def __init__(self, error: ValidationError) -> None:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [f"{'.'.join(map(str, item['loc']))}: {item['msg']} [{item['type']}]" for item in details]
        super().__init__("\n".join([f"{error.title} does not fit", *lines]))


_InputlessValidationError.__qualname__ = ValidationError.__qualname__
_InputlessValidationError.__name__, _InputlessValidationError.__module__ = (
    ValidationError.__name__,
    ValidationError.__module__,
)
