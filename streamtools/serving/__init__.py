"""Runs that outlive a connection, and the ways to them over ASGI: `streamtools.runs` and `streamtools.outputs.asgi`."""
