"""Links carry frames between a manager and its workers; a worker always dials, nothing dials a worker.

    contract    what both ends of a link do
    local       manager and worker in one process
    websocket   the default: msgpack frames on the manager's HTTP port

A link delivers in order and knows when it is closed; it knows nothing of what the messages mean.
"""
