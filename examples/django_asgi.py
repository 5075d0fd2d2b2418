"""A chat in a Django project: the page is a view, and an ASGI application next to Django streams the answer.

    uvicorn django_asgi:application        # and http://127.0.0.1:8000/

The responses of streamtools are ASGI applications, which Django's views cannot return. So `asgi.py` of a project,
which is this file, routes the path of the chat to streamtools, and all other paths to Django, as Channels does for
websockets. Django's session identifies the user. Its cookie has `SameSite=Lax`, so that other sites cannot send
requests.
"""

from __future__ import annotations

import os
import secrets

import django
import msgspec
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, HttpResponse
from django.urls import path
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from streamtools import chat, tool
from streamtools.conversation import Chat, OpenAIChat
from streamtools.history import read_messages
from streamtools.outputs import asgi

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Chat</title>
<button id="ask">What is the weather in Paris?</button>
<p id="answer" style="white-space: pre-wrap" aria-live="polite"></p>
<script type="module">
  ask.onclick = async () => {
    const messages = [{ role: "user", content: ask.textContent }];
    const response = await fetch("/chat", { method: "POST", body: JSON.stringify({ messages }) });
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) answer.textContent += text;
  };
</script>
</html>
"""

settings.configure(  # in a project: settings.py
    SECRET_KEY=os.environ.get("SECRET_KEY", "") or secrets.token_urlsafe(),
    ALLOWED_HOSTS=["localhost", "127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
)
django.setup()
from django.contrib.sessions.backends.signed_cookies import SessionStore  # noqa: E402  # it reads the settings

model = OpenAIChat(
    os.environ.get("MODEL", "default"),
    base_url=os.environ.get("MODEL_URL", "http://127.0.0.1:8080/v1"),
    native_tool_calls=False,
)


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Tell the weather in a city."""
    return {"message": f"18 °C in {city}"}


def page(request: HttpRequest) -> HttpResponse:
    """Return the page, and start a session. In a project, this view requires a login."""
    request.session.setdefault("visitor", secrets.token_hex(8))
    return HttpResponse(PAGE)


urlpatterns = [path("", page)]


def ask(body: bytes) -> Chat:
    """Return the chat for a request body."""
    return chat(model, read_messages(msgspec.json.decode(body)["messages"], client=True), tools=[get_weather])


async def answer(request: Request) -> Response:
    """Answer a visitor with the text of a chat. `format` selects other formats."""
    if request.method != "POST":
        return Response(status_code=405, headers={"allow": "POST"})
    session = SessionStore(request.cookies.get(settings.SESSION_COOKIE_NAME))
    if not await session.aget("visitor"):
        return Response("Load the page first.", 403)
    try:
        return asgi.event_stream_response(await asgi.read_body(request, ask), format="text")
    except HTTPException as refused:  # the body is too large or invalid
        return Response(refused.detail, refused.status_code, refused.headers)


django_application = get_asgi_application()


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer the path of the chat, and pass all others to Django."""
    if scope["type"] == "http" and scope["path"] == "/chat":
        await (await answer(Request(scope, receive)))(scope, receive, send)
    else:
        await django_application(scope, receive, send)
