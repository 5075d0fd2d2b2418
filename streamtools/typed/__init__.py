"""The type that an answer must have, and the validation of the answer."""

from streamtools.typed.output_type import OutputType

__all__ = ["OutputType"]
