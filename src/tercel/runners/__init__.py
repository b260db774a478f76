"""Runners start, watch, bound and end the processes of attempts.

    contract     what every runner does

    pool         the worker's runner: lanes, large outputs, leftovers of earlier processes
    lane         its end of one spawner
    points       what the tasks of a template run

    channel      what pool and spawner say to each other
    outputs      files of large outputs: written by spawners, read by the pool
    trees        finding and ending process trees

    spawner      the program of the small process that runs a lane's attempts
    run          the attempt under way in it
    programs     a job's arguments and environment, made ready once
    posix_spawn  starting a process
    pipes        taking what it writes
    capture      what is kept of that
    reports      what is said of it in the end
    sandbox      its directory

A runner knows nothing of managers, links or scheduling. What a spawner imports (all below `channel`) imports
little itself: no msgspec, no pathlib, no socket.
"""
