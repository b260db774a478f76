"""The worker: joins a manager, runs what it is offered, and reports until it is acknowledged.

    agent      the protocol's bookkeeping, pure: what is queued, in a lane, owed
    spool      unacknowledged reports on disk
    machine    what this node is and how much it gives
    service    the loop: link <-> agent <-> runner

Knows managers only through wire and a link.
"""
