"""How the library logs: to the standard `logging` tree under `streamtools`, or to structlog where it is configured.

A record carries names, codes, sizes and times, and no content. Where code of the application's has failed, it carries
the traceback too, without locals and without the inputs that pydantic repeats in its messages.

Nothing is configured here. As long as the application configures no logging, Python writes warnings and errors of
`logging` to standard error. The values of a record are in its message, and as a dict in its attribute `streamtools`.
"""

from __future__ import annotations

import logging
import traceback
from typing import Any

import structlog
from pydantic_core import ValidationError

_FRAMES = 6  # from the logger of `logging` to whoever logs, itself included


class Logger:
    """The logger of a module, of its name."""

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
        """Log an error; `error` is what code of the application's has raised, which is logged with its traceback."""
        if error is not None:
            values |= loggable(error) | {"exc_info": without_inputs(error)}
        self._write("error", event, values)

    def _write(self, level: str, event: str, values: dict[str, Any]) -> None:
        logger = self._logging
        if structlog.is_configured():
            logger = structlog.get_logger(self._name).bind(logger=self._name)
            if "exc_info" in values:  # as text, since renderers of structlog may write locals
                values["exception"] = "".join(traceback.format_exception(values.pop("exc_info"))).rstrip()
        getattr(logger, level)(event, **values)


def _to_logging(logger: Any, level: str, values: structlog.typing.EventDict) -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the arguments with which `logging` is called, as the last of structlog's processors."""
    event, error = values.pop("event"), values.pop("exc_info", None)
    text = " ".join([event, *(f"{name}={value!r}" for name, value in values.items())])
    return ("%s", text), {"exc_info": error, "extra": {"streamtools": values}, "stacklevel": _FRAMES}


def loggable(error: BaseException) -> dict[str, str]:
    """Return the type of an exception and the line that raised it, which is all that is safe to log of any.

    Of a group they are those of its first.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
    return {"error": type(error).__qualname__, "raised_at": place}


def without_inputs(error: BaseException) -> BaseException:
    """Return the exception, or, if errors of pydantic's are in its chain, one like it in which they name no input."""
    chain: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in chain:
            chain[id(each)] = each
            left += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]
    if not any(isinstance(each, ValidationError) for each in chain.values()):
        return error
    twins: dict[int, BaseException] = {}
    for each in reversed(chain.values()):  # what a group holds comes behind it
        twins[id(each)] = _twin(each, twins).with_traceback(each.__traceback__)
    for each in chain.values():
        twin = twins[id(each)]
        twin.__cause__, twin.__context__ = twins.get(id(each.__cause__)), twins.get(id(each.__context__))
        twin.__suppress_context__ = each.__suppress_context__
    return twins[id(error)]


def _twin(error: BaseException, twins: dict[int, BaseException]) -> BaseException:
    if isinstance(error, ValidationError):
        return _Validation(error)
    if isinstance(error, BaseExceptionGroup):
        return error.derive([twins.get(id(each), each) for each in error.exceptions])
    twin = type(error).__new__(type(error), *error.args)
    twin.__dict__.update(error.__dict__)
    return twin


class _Validation(ValueError):
    """What pydantic found, without what it found it in."""

    def __init__(self, error: ValidationError) -> None:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']} [{each['type']}]" for each in found]
        super().__init__("\n".join([f"{error.title} does not fit", *lines]))


_Validation.__qualname__ = ValidationError.__qualname__  # what is logged is that, by this name
_Validation.__name__, _Validation.__module__ = ValidationError.__name__, ValidationError.__module__
