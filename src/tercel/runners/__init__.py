"""Runners start, watch, bound and end the processes of attempts.

    contract     what every runner does

    pool         the worker's runner: lanes, large outputs, leftovers of earlier processes
    lane         its end of one spawner
    points       what the tasks of a template run
    call_lane    a lane that makes calls of Python functions: its line, and the interpreter that works it off
    call_process its end of one interpreter
    call_ends    how calls end that do not end by themselves
    following    what a followed call has written

    channel      what pool and spawner say to each other, lane and interpreter likewise
    board        what lane and interpreter have in shared memory
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

    interpreter  the program of the warm Python process that makes a lane's calls
    calls        pickles: functions, arguments, what is returned or raised
    surroundings what a call finds around it, put right between calls

A runner knows nothing of managers, links or scheduling. What a spawner or an interpreter imports (all below
`channel`) imports little itself: no msgspec, no pathlib, no socket.
"""
