"""The page of `streamtools serve`: a chat over the runs and the responses of this package.

Conversations live in memory, and each answer is a run: the page that is reloaded, a second tab and a connection that
broke read the same log from where they are. Nothing on the page comes from elsewhere. Needs the extra `web`.
"""

from streamtools.apps.web.app import make_app, reach
from streamtools.apps.web.conversations import Answerer, Suggestion, user_message
from streamtools.apps.web.dissecting import question_of

__all__ = ["Answerer", "Suggestion", "make_app", "question_of", "reach", "user_message"]
