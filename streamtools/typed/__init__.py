"""Types of answers: what a value has to be, how far that can be told from its beginning, and its validation."""

from streamtools.typed.shape import ANYTHING, OutputType, Shape

__all__ = ["ANYTHING", "OutputType", "Shape"]
