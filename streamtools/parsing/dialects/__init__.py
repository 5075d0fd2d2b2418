'''The dialects: the ways in which models write calls into their text.

A family module holds the dialects that share a form. Its docstring shows the forms.

| module | the calls of its dialects |
| --- | --- |
| `hash_and_tilde` | the two dialects that a prompt teaches by default |
| `json_with_name` | JSON that contains the name of the tool |
| `json_after_name` | a name, and then the JSON of the arguments |
| `parameter_xml` | `<function=NAME>`, or a name and pairs of tags |
| `attribute_xml` | `<invoke name="NAME">`, or tags with the names of tools |
| `message_headers` | messages whose headers say what they contain |
| `pythonic` | `NAME(argument=value)`, and the notation of the Gemma models |

To add a dialect:

1. Choose the family module with the same form, or make a new one.
2. Write a function in it that returns the `Dialect`. Its name is the id. Its docstring names the models and the source
   of the form, like a chat template or the parser of an inference server.

       def my_model_json() -> Dialect:
           """Return the dialect of example/my-model, by its chat template."""
           return Dialect(
               id="my_model_json",
               openers=(Opener(("<call>", SPACES), json_calls("</call>"), ahead=("{",)),),
               write_call=lambda name, arguments: f"<call>{write_json(name, arguments)}</call>",
               reserved=("<call", "</call"),
           )

   An opener has a marker (`parts`) and a grammar that reads the call after it. `ahead` is the next text, which makes
   sure that it is a call. The grammars are in `streamtools.parsing.bodies`. `reserved` names the texts that a tool
   result must not contain. The fields of `Opener`, `Tag` and `Dialect` in `base` explain the rest.
3. Add the id and the module to `table`, and the models to `model_names`.
4. Describe its markers in `tests/families`, for the property tests. Run `python -m tests.whole.dialects_page`, which
   writes the documentation, and `python -m conformance run --dialect my_model_json`.

The sources of the forms are chat templates where we had them. If a template differs from a dialect, the template is
right.
'''

from __future__ import annotations

from streamtools.parsing.dialects.base import Dialect, NearMiss, Opener, Tag
from streamtools.parsing.dialects.choosing import (
    ByName,
    Dialects,
    auto_as_near_misses,
    choose_dialects,
    enabled_dialects,
    for_model,
    others_as_near_misses,
    unnamed,
)
from streamtools.parsing.dialects.hash_and_tilde import hash_marker, tilde_fence
from streamtools.parsing.dialects.model_names import MODELS, ModelFamily, dialects_for, families_for
from streamtools.parsing.dialects.table import DIALECTS, TAUGHT_DIALECTS

__all__ = [
    "DIALECTS", "MODELS", "TAUGHT_DIALECTS", "ByName", "Dialect", "Dialects", "ModelFamily", "NearMiss", "Opener",
    "Tag", "auto_as_near_misses", "choose_dialects", "dialects_for", "enabled_dialects", "families_for", "for_model",
    "hash_marker", "others_as_near_misses", "tilde_fence", "unnamed",
]  # fmt: skip
