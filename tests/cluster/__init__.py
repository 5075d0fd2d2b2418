"""Tests several processes with one Redis under faults: the events and effects must keep the promises of the docs.

An episode starts a Redis, three worker processes, and a relay for each worker, which stalls, drops or cuts its
connection. Runs start on random workers. Readers reconnect to other workers, and any worker may get a stop or an
approval. Meanwhile, processes and Redis are killed or paused. Then `checks` examines the recorded history. Everything
follows from a seed, except the decisions of the machine's scheduler.

    python -m tests.cluster --minutes 2 --seed 1

`--plant` breaks the workers with a planted fault, which the checks must find.
"""
