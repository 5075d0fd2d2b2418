"""Implements `streamtools.runs` (runs) and `streamtools.outputs.asgi` (sending events)."""
