"""The manager: keeps the durable truth, offers tasks to workers, answers clients.

    options        what can be set
    service        intake -> core -> commit -> effects
    conversation   one connected worker
    hearing        what a worker says, judged before it counts
    sightings      what it says of its directory, likewise
    frames         what it is sent, in frames that a link takes
    submissions    jobs and flows as they are handed in
    requests       what clients ask for: cancel, retry, hold, release, revise
    snapshots      jobs with all that is known of them, as files
    restoring      jobs with a past are put in, and go on
    forking        jobs are replayed from a moment, with some things changed
    fork_changes   which of them, and whether that can be
    queues         who may change them, and how they stand
    finding        a job by its number
    views          what clients are shown of jobs and tasks
    explaining     why tasks are where they are
    overview       the pool, and how the manager is doing
    looks          questions to one worker about its directory, on their way
    looking        the directories of workers, as people are shown them
    findings       what is worth a look there
    logs           outputs, of ended and of running tasks
    values         what functions are given and return, by key
    events         who waits for what, and what happened meanwhile
    streams        one client's stream of events
    access         tokens and what they allow
    server         the HTTP server underneath: bounds on waiting
    http           the API over HTTP: who may do what, errors as problems
    calls          one request, read and checked
    handlers       one small function per route
    routes         the table of them
    openapi        its description, generated from that table
    problems       errors as clients see them

Knows workers only through wire and a link.
"""
