"""Asynchronous torture: the same run again and again, and at each `await` in turn something violent happens.

A scenario is a run as users have them: a stream with tools, a chat, runs with readers, a response, a websocket. It is
run once, and its steps and the points where code of ours is called are counted. Then it is run once more for each kind
of blow and each step or point, and after each run everything is looked at: who ended how, what is left, what was told.

    python -m tests.torture                              # all of it: every scenario, every blow, every place
    python -m tests.torture --seconds 60 --seed 1        # a share of it, and pairs of blows
    python -m tests.torture prose --backend trio --blow cancel@17      # one run, as a failure prints it
"""
