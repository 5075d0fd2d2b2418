"""UI events from an ASGI application: as the body of a response, or over a websocket. Needs the extra `web`.

    @app.post("/chat")
    async def answer(question: Question) -> Response:
        return event_stream_response(chat(model, question.messages, tools=tools))

What is returned is a Starlette response and an ASGI application, so that FastAPI, Starlette, Litestar and bare ASGI
take it.
"""

try:
    import starlette  # noqa: F401  # which all of it needs
except ImportError as error:
    raise ModuleNotFoundError(
        "streamtools.outputs.asgi needs Starlette, which comes with the extra `web`: pip install 'streamtools[web]'",
        name=error.name,
    ) from error

from streamtools.outputs.asgi.conversing import serve_websocket
from streamtools.outputs.asgi.positions import AnyRequest, last_event_id
from streamtools.outputs.asgi.reading import OnDisconnect, Readable
from streamtools.outputs.asgi.responses import EventStreamResponse, event_stream_response
from streamtools.outputs.asgi.sessions import Handler, Session
from streamtools.outputs.asgi.shutdown import Shutdown, shutdown_signal
from streamtools.outputs.asgi.sockets import AnyWebSocket
from streamtools.outputs.asgi.websockets import send_events

__all__ = [
    "AnyRequest",
    "AnyWebSocket",
    "EventStreamResponse",
    "Handler",
    "OnDisconnect",
    "Readable",
    "Session",
    "Shutdown",
    "event_stream_response",
    "last_event_id",
    "send_events",
    "serve_websocket",
    "shutdown_signal",
]
