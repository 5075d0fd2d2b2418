"""The web page of `streamtools serve`: a chat, and a debugger for recordings. It needs the extra `web`.

Each answer is a run (`streamtools.runs`). So a reloaded page, a second tab or a new connection reads the same events.
Conversations are kept in memory. The page loads no files from other hosts.
"""

from streamtools.apps.web.app import Answerer, PageAnswer, Suggestion, make_app
from streamtools.apps.web.dissection import question_of

__all__ = ["Answerer", "PageAnswer", "Suggestion", "make_app", "question_of"]
