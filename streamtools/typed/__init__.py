"""Validates the typed output of a stream: an answer that must have a given type."""

from streamtools.typed.output_type import OutputType

__all__ = ["OutputType"]
