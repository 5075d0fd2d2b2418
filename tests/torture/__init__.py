"""Asynchronous torture: repeats a run, and disturbs it at each `await` in turn.

A scenario is a typical run: a stream with tools, a chat, runs with readers, a response, a websocket. A first run counts
its steps, and the points at which it calls code of the test. Then the scenario runs again for each kind of blow and
each step or point. A *blow* is a disturbance, such as a cancellation. After each run, `verdict` checks how each task
ended, which resources remain, and which events were reported.

    python -m tests.torture                              # every scenario, every blow, every place
    python -m tests.torture --seconds 60 --seed 1        # a random share, and pairs of blows
    python -m tests.torture prose --backend trio --blow cancel@17      # one run, as a failure prints it
"""
