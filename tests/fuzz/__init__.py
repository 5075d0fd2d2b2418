"""Fuzzing: the package keeps its laws for inputs that no test author wrote.

    python -m tests.fuzz --list
    python -m tests.fuzz --minutes 10 frames machine
    python -m tests.fuzz --minutes 1 --share all
    python -m tests.fuzz --replay .fuzz/found/frames-1a2b3c4d5e6f

A *target* (`targets/`) takes bytes and checks laws. The laws are those of the property tests. The engine (`plain`)
mutates inputs and keeps each input that has a new kind of outcome. It starts with the seeds and words of the target.
The same random seed gives the same inputs. Budgets are processor time, so that runs on a busy machine are comparable.
"""
