'''Defines the dialects. A dialect is one way in which models write calls into their text.

Each family module contains the dialects with a similar form. Its docstring shows examples.

| module | form of the calls in its dialects |
| --- | --- |
| `hash_and_tilde` | JSON after `###:`, or between lines with `~~~`: prompts teach these dialects by default |
| `json_with_name` | JSON that contains the name of the tool |
| `json_after_name` | a name, and then the JSON of the arguments |
| `parameter_xml` | `<function=NAME>`, or a name and pairs of tags |
| `attribute_xml` | `<invoke name="NAME">`, or tags with the names of tools |
| `message_headers` | messages whose headers name the content or the recipient |
| `pythonic` | `NAME(argument=value)`, and the notation of the Gemma models |

To add a dialect:

1. Choose the family module with the most similar form, or create a new one.
2. Write a function in the family module that returns a `Dialect`. The name of the function is the id of the dialect.
   The docstring names the models, and the source of the form, such as a chat template or a parser of an inference
   server.

       def my_model_json() -> Dialect:
           """Return the dialect of example/my-model, as its chat template defines it."""
           return Dialect(
               id="my_model_json",
               openers=(Opener(("<call>", SPACES), json_calls("</call>"), ahead=("{",)),),
               write_call=lambda name, arguments: f"<call>{write_json(name, arguments)}</call>",
               reserved=("<call", "</call"),
           )

   An opener has a marker (`parts`), and a grammar that reads the call after the marker. `ahead` is the text that must
   follow the marker. It distinguishes a call from a mention of the marker. The grammars are in
   `streamtools.parsing.bodies`. `reserved` holds the texts that a tool result must not contain. `Opener`, `Tag` and
   `Dialect` in `base` document the other fields.
3. Add the id to the entry of its family module in `table`. Add the models to `model_names`.
4. Describe the markers in `tests/families`, for the property tests. Run `python -m tests.whole.dialects_page` to
   generate the documentation. Then run `python -m conformance run --dialect my_model_json`.

If the chat template of a model is public, it is the source of the dialect. If a dialect differs from that template, the
dialect has a bug.
'''

from __future__ import annotations

from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener, Tag, named_json
from streamtools.parsing.dialects.choosing import (
    ByName,
    Dialects,
    auto_as_near_misses,
    choose_dialects,
    enabled_dialects,
    for_model,
    is_default,
    others_as_near_misses,
)
from streamtools.parsing.dialects.hash_and_tilde import hash_marker, tilde_fence
from streamtools.parsing.dialects.model_names import MODELS, ModelFamily, dialects_for, families_for
from streamtools.parsing.dialects.table import DIALECTS, TAUGHT_DIALECTS

__all__ = [
    "DIALECTS", "MODELS", "TAUGHT_DIALECTS", "ByName", "Dialect", "Dialects", "ModelFamily", "NearMiss", "Opener",
    "Tag", "auto_as_near_misses", "choose_dialects", "dialects_for", "enabled_dialects", "families_for", "for_model",
    "hash_marker", "is_default", "named_json", "others_as_near_misses", "tilde_fence",
]  # fmt: skip
