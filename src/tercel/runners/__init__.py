"""Runners start, watch, bound and end the processes of attempts.

    contract   what every runner does
    spawner    one small process per lane: it starts attempts with posix_spawn, reaps whatever they leave
    pool       the worker's end of its spawners

A runner knows nothing of managers, links or scheduling.
"""
