"""The command line.

    app        `main`: the table of commands, errors -> exit codes
    lazy       groups that load a command's module only when it is used; options that every command takes
    screen     what goes to stdout and stderr, for people or with --json
    words      numbers, sizes, times and tables for people
    jobflags   the options that describe a job, and job files -> drafts of jobs (sdk.files)
    showing    what --dry-run prints; preview: the commands of the first tasks; judging: what a manager would refuse
    flows      handing in several jobs that need one another
    selecting  37, 37.0-9, 1-5, last, all -> jobs and tasks
    completing what a shell completes by asking the manager
    talking    one command's conversation with the manager
    waiting    for jobs and tasks to end, through restarts of the manager
    running    what `tercel run` does
    sharing    which manager it uses: one that is there, one in this process, or one in the place of another run's
    outputs    what tasks wrote, in batches, as they end
    progress   how far a job is: plain lines, or a bar (bar) on a terminal
    services   processes that stay: event loop, signals
    logbook    the log of such a process, and its options; logfile: in a file that is rotated
    listening  the options of `up` and `manager`
    giving     the options of `up` and `worker`
    hosting    what `up`, `manager`, `worker` and, where no manager runs, `run` become; imports wiring
    tokens     asked of the manager, or done on its data directory
    codes      exit codes
    commands/  one module per command

Nothing here knows how a manager works: commands speak to it through the sdk; those that start one, through wiring.
A command that only talks to a manager must not import wiring (start-up time; see tests/cli/test_startup.py).
Exit codes: 0 done, 1 a task failed or was cancelled, 2 wrong usage, 3 no manager can serve the request now, 70 a bug.
"""

from tercel.cli.app import main as main
