"""How each provider wants to be told what was said so far: one module each, and what they share."""
