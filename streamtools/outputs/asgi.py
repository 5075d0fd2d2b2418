"""Sends UI events from an ASGI application, in the body of a response or over a websocket. Needs the extra `web`.

    @app.post("/chat")
    async def answer(question: Question) -> Response:
        return event_stream_response(chat(model, question.messages, tools=tools))

The result is a Starlette response, which is also an ASGI application. So FastAPI, Starlette, Litestar and plain ASGI
applications accept it.
"""

from streamtools.loading import check_calls, require_packages

with require_packages("streamtools.outputs.asgi"):
    from streamtools.serving.event_reader import OnDisconnect, Readable
    from streamtools.serving.event_response import AnyRequest, EventStreamResponse, event_stream_response, last_event_id
    from streamtools.serving.requests import exception_handlers, read_body
    from streamtools.serving.shutdown import Shutdown, shutdown_signal
    from streamtools.serving.websockets import AnyWebSocket, Handler, Session, send_events, serve_websocket

__all__ = [
    "AnyRequest", "AnyWebSocket", "EventStreamResponse", "Handler", "OnDisconnect", "Readable", "Session",
    "Shutdown", "event_stream_response", "exception_handlers", "last_event_id", "read_body", "send_events",
    "serve_websocket", "shutdown_signal",
]  # fmt: skip

check_calls(globals())
