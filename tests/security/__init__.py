"""The security table of `docs/security.md`: one module a row, which holds the row's claim as it is stated there.

Most rows are held by other tests as well, closer to the code; the page names them.
"""
