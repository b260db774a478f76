"""The manager: keeps the durable truth, offers tasks to workers, answers clients.

    options        what can be set
    service        intake -> core -> commit -> effects
    conversation   one connected worker
    requests       what clients ask for: submit, cancel, retry
    views          what clients are shown
    logs           outputs, of ended and of running tasks
    events         live streams of what changed
    access         tokens and what they allow
    http           the API over HTTP: authentication, errors as problem details
    handlers       one small function per route
    routes         the table of them
    openapi        its description, generated from that table

Knows workers only through wire and a link.
"""
