"""The manager: keeps the durable truth, offers tasks to workers, answers clients.

    options     what can be set
    committer   many events, one commit; effects follow
    service     intake -> core -> commit -> effects
    links       one conversation per connected worker
    views       what clients are shown
    events      live streams of what changed
    access      tokens and what they allow
    http        the API over HTTP, and its OpenAPI document

Knows workers only through wire and a link.
"""
