"""Fuzzing: whatever reads what others send, held to its laws over inputs that nobody thought of.

    python -m tests.fuzz --list
    python -m tests.fuzz --minutes 10 frames machine
    python -m tests.fuzz --minutes 1 --share all
    python -m tests.fuzz --replay .fuzz/found/frames-1a2b3c4d5e6f

A *target* (`targets/`) takes bytes and checks laws; the laws are those of the property tests, with no second statement
of any. An *engine* chooses the bytes. There are two: `guided` is atheris, which keeps what reaches new code (the extra
`fuzz`), and `plain` is a mutating engine of our own, which keeps what gives a new kind of outcome; it needs nothing,
and the same seed gives it the same inputs. Both begin with the target's seeds, and with the words that its input is
made of. Time is processor time, so that figures from a busy machine can be compared.
"""
