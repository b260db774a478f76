"""The worker: joins a manager, runs what it is offered, and reports until it is acknowledged.

    agent          the protocol's bookkeeping, pure: what is queued, in a lane, owed
    held, lanes    the jobs, attempts and lanes in those books, and the room and pieces that lanes take
    debts          reports that are not acknowledged
    staging        which values are here and who waits for which, pure
    values         fetching them, piece by piece
    fetching       between agent and values
    spool          the worker's directory: its name, its lock, unacknowledged reports

    node           what this node is and how much of it is given to tasks, with the help of
    cgroups, gpus, speed, engines, remembered
    offering       tags and resources as people write them

    meter          measuring what the node does
    pressure       what is given while others use it, pure
    health         whether it is fit for tasks
    facts          what is told of it, pure
    watching       the loop over these
    walltime       the plan of a worker whose time is limited, pure

    probing        testers that the manager asks here
    showing        what people ask about its directory, with the help of
    looking, sandboxes, walking

    outbox         what is to be said to the manager, in frames of bounded size
    conversation   one link, from Hello to its end: heartbeats, pace
    redial         how long to wait before the next one
    leaving        drained, stopped, or out of time
    service        the loop: link <-> agent <-> runner

Knows managers only through wire and a link.
"""
