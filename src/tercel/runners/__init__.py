"""Runners start, watch, bound and end the processes of attempts.

    contract     what every runner does

    pool         the worker's runner: lanes, large outputs, leftovers of earlier processes
    lane         its end of one spawner
    losses       whether a task kills its spawners
    seeking      what jobs look for in the outputs of attempts that failed
    starting     how its process, or an interpreter, is started
    points       what the tasks of a template run
    call_lane    a lane that makes calls of Python functions: its line, and the interpreter that works it off
    call_process its end of one interpreter
    call_ends    how calls end that do not end by themselves
    call_watch   what a call does meanwhile: its limits, its outputs
    following    what a followed call has written

    channel      what pool and spawner say to each other, lane and interpreter likewise
    board        what lane and interpreter have in shared memory
    outputs      files of large outputs: written by spawners, read by the pool
    trees        finding, warning and ending process trees
    hierarchies  which control groups there are, and those of earlier processes
    diskfloor    what is done when the worker's disk is nearly full

    spawner      the program of the small process that runs a lane's attempts
    launching    how it starts one: sandbox, limits, command
    run          the attempt under way in it
    programs     a job's arguments and environment, made ready once
    commands     what is executed, and where that is found
    isolation    attempts inside of something; bubblewrap
    engines      attempts in containers
    asking       small questions to engines
    bounds       what holds a lane's processes to a job's limits
    cgroups      its control groups
    guard        what an attempt took too much of
    measuring    memory, processes, disk, seen from outside
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
