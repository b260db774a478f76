"""What real programs say when something outside is broken, and the rule that is proposed for it."""

import re

import pytest

from tercel.core.blocking import check_rule, compiled, hint, parse_rule, rule_text, trigger_of
from tercel.core.reports import End, Report
from tercel.core.symptoms import SYMPTOMS, rule_from
from tercel.testers.registry import Testers

SAID = [
    (
        "ssh: connect to host login.lab port 22: Connection refused\nscp: Connection closed",
        "ssh:login.lab:22",
    ),
    ("ssh: connect to host login.lab port 2222: Connection timed out", "ssh:login.lab:2222"),
    ("ada@login.lab: Permission denied (publickey,password).", "ssh-auth:ada@login.lab"),
    ("ssh: Could not resolve hostname login.lab: Name or service not known", "dns:login.lab"),
    ("curl: (6) Could not resolve host: store.lab", "dns:store.lab"),
    ("wget: unable to resolve host address ‘store.lab’", "dns:store.lab"),
    (
        "curl: (7) Failed to connect to store.lab port 443 after 2 ms: Couldn't connect to server",
        "tcp:store.lab:443",
    ),
    (
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://store.lab:8443/a/b?c=1",
        "https://store.lab:8443/",
    ),
    (
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='store.lab', port=443): Max retries exceeded with url: /",
        "tcp:store.lab:443",
    ),
    (
        'psycopg.OperationalError: connection to server at "db.lab" (10.0.0.7), port 5432 failed: Connection refused',
        "database:postgresql://db.lab:5432/",
    ),
    ("sqlite3.OperationalError: database is locked", "command:./is-unlocked.sh"),
    ("cp: error writing '/scratch/ada/x.dat': No space left on device", "disk:/scratch/ada>=1G"),
    ("OSError: [Errno 28] No space left on device", "disk:/tmp>=1G"),
    ("cp: failed to close 'x': Disk quota exceeded", "command:./quota-ok.sh"),
    ("ls: cannot access '/data/run7': Stale file handle", "dir:/data/run7"),
    (
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "command:sinfo",
    ),
    (
        "slurm_load_partitions: Unable to contact slurm controller (connect failure)",
        "command:sinfo",
    ),
    (
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
        "command:./may-submit.sh",
    ),
    ("qsub: cannot connect to server pbs.lab (errno=111)", "command:qstat -B"),
    ("ERROR: Failed to connect to local queue manager", "command:condor_q"),
    (
        "License checkout failed.\nLicense path:  27000@licence.lab:\nFLEXnet Licensing error:-15,578.",
        "tcp:licence.lab:27000",
    ),
]


def report(end: End, code: int) -> Report:
    return Report(1, 0, 1, end, code, 0.0, 1.0, 0.0, 0)


@pytest.mark.parametrize(("said", "tester"), SAID)
def test_the_proposed_rule_is_one_that_would_have_waited(said: str, tester: str) -> None:
    rule = rule_from("", f"starting\n{said}\n")
    assert rule is not None and rule.tester == tester
    proposed = parse_rule(rule_text(rule))
    check_rule(proposed)
    Testers().normalise(proposed.tester)
    pattern = compiled(trigger_of(proposed.on).pattern)
    text = said.encode()
    assert pattern.search(text, 0, len(text)) is not None


def test_every_row_of_the_table_is_shown_here() -> None:
    used = {
        next(number for number, symptom in enumerate(SYMPTOMS) if re.search(symptom.said, said))
        for said, _ in SAID
    }
    assert used == set(range(len(SYMPTOMS)))


def test_what_is_known_comes_before_the_exit_code() -> None:
    said = "cp: failed to close 'x': Disk quota exceeded"
    assert hint(report(End.EXITED, 1), "", said) == (
        "if this is not its fault: --block-on 'stderr:/Disk quota exceeded/ -> command:./quota-ok.sh'"
    )
    assert hint(report(End.EXITED, 1), said, "").count("stdout:/") == 1
    assert (
        hint(report(End.EXITED, 3), "fine", "") == "if this is not its fault: --block-on 'exit:3 -> TESTER'"
    )
    assert hint(report(End.TIMED_OUT, 0), "", said) == ""


@pytest.mark.parametrize(
    "text", ["", "Traceback\nValueError: 503\n", "a" * 100_000, "@: Permission denied (" * 200]
)
def test_anything_else_is_a_failure_like_any_other(text: str) -> None:
    assert rule_from(text, text) is None
