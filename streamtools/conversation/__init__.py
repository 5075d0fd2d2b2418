"""Around one stream: prompts, requests, and the conversation that goes on until the model is done.

Nothing is imported here: a result imports `messages`, and `chat` imports results.
"""
