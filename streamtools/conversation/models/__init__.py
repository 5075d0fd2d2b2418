"""Models: one class for each provider, and `ScriptedModel` for tests. `streamtools.conversation` has their names."""

from streamtools.loading import load_later

__all__: list[str] = []

load_later(globals())
