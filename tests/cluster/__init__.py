"""Histories of several processes over one Redis, under faults: what readers and tools saw is held against the promises.

An episode starts a Redis, three worker processes on either event loop, and a network of its own between them, which
stalls, swallows and cuts. Runs are started on random workers, read by readers who come back to other workers, stopped
and decided about from anywhere; meanwhile processes are killed or paused, and so is Redis. Then `checks` reads the
history. Everything follows from a seed but what the machine's scheduler decides.

    python -m tests.cluster --minutes 2 --seed 1

`--plant` plants a fault into the workers, which has to be found.
"""
