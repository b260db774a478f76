"""The worker: joins a manager, runs what it is offered, and reports until it is acknowledged.

    agent          the protocol's bookkeeping, pure: what is queued, in a lane, owed
    spool          the worker's directory: its name, its lock, unacknowledged reports
    node           what this node is and how much of it is given to tasks
    outbox         what is to be said to the manager, in frames of bounded size
    conversation   one link, from Hello to its end: heartbeats, pace
    service        the loop: link <-> agent <-> runner

Knows managers only through wire and a link.
"""
