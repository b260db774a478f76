"""The worker: joins a manager, runs what it is offered, and reports until it is acknowledged.

    agent          the protocol's bookkeeping, pure: what is queued, in a lane, owed
    held           the jobs, lanes and attempts in those books
    staging        which values are here and who waits for which, pure
    values         fetching them, piece by piece
    fetching       between agent and values
    spool          the worker's directory: its name, its lock, unacknowledged reports
    node           what this node is and how much of it is given to tasks
    outbox         what is to be said to the manager, in frames of bounded size
    conversation   one link, from Hello to its end: heartbeats, pace
    redial         how long to wait before the next one
    service        the loop: link <-> agent <-> runner

Knows managers only through wire and a link.
"""
