"""The page of `streamtools serve`: a chat, and a debugger for recordings. Needs the extra `web`.

Each answer is a run (`streamtools.runs`). A reloaded page, a second tab and a new connection therefore read the same
events. Conversations are kept in memory. The page loads nothing from other hosts.
"""

from streamtools.apps.web.app import make_app
from streamtools.apps.web.conversations import Answerer, Suggestion
from streamtools.apps.web.dissection import question_of

__all__ = ["Answerer", "Suggestion", "make_app", "question_of"]
