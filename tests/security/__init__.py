"""The tests of `docs/security.md`. Each module tests one row of its table, and its docstring states the row's claim.

Other tests check most rows too, closer to the code. The page names them.
"""
