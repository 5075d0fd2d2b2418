"""Validates the typed output of a stream: an answer that must have a given type."""

from streamtools.typed.output_type import InvalidItem, InvalidValue, OutputType

__all__ = ["InvalidItem", "InvalidValue", "OutputType"]
