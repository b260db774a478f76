"""What real programs say when something outside is broken, and the rule that is proposed or applied for it."""

import re

import pytest

from tercel.core.blocking import (
    check_rule,
    compiled,
    hint,
    parse_rule,
    patterns_of,
    rule_for,
    rule_text,
    trigger_of,
)
from tercel.core.errors import UsageError
from tercel.core.model import BlockRule, JobSpec
from tercel.core.reports import End, Report
from tercel.core.symptoms import SYMPTOMS, is_near, known_tester, rule_from
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
    ("curl: (6) Could not resolve host: my_store", "dns:my_store"),
    ("wget: unable to resolve host address ‘store.lab’", "dns:store.lab"),
    (
        "curl: (7) Failed to connect to store.lab port 443 after 2 ms: Couldn't connect to server",
        "tcp:store.lab:443",
    ),
    (
        "requests.exceptions.HTTPError: 503 Server Error: Service Unavailable for url: https://store.lab:8443/a/b?c=1",
        "tcp:store.lab:8443",
    ),
    ("urllib.error.HTTPError: HTTP Error 502: Bad Gateway <http://store.lab/a>", "tcp:store.lab:80"),
    (
        "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool(host='store.lab', port=443): Max retries exceeded with url: / "
        "(Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection'))",
        "tcp:store.lab:443",
    ),
    (
        'psycopg.OperationalError: connection to server at "db.lab" (10.0.0.7), port 5432 failed: Connection refused',
        "database:postgresql://db.lab:5432/",
    ),
    ("sqlite3.OperationalError: database is locked", "command:./is-unlocked.sh"),
    ("cp: error writing '/scratch/ada/x.dat': No space left on device", "disk:/scratch/ada>=1G"),
    ("OSError: [Errno 28] No space left on device: '/scratch/ada/x.dat'", "disk:/scratch/ada>=1G"),
    ("OSError: [Errno 28] No space left on device", "disk:/tmp>=1G"),
    ("cp: failed to close 'x': Disk quota exceeded", "command:./quota-ok.sh"),
    ("ls: cannot access '/data/run7': Stale file handle", "file:/data/run7"),
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
    found = rule_from("", f"starting\n{said}\n")
    assert found is not None
    assert found[0].tester == tester
    proposed = parse_rule(rule_text(found[0]))
    check_rule(proposed)
    Testers().normalise(proposed.tester)
    pattern = compiled(trigger_of(proposed.on).pattern)
    text = said.encode()
    assert pattern.search(text, 0, len(text)) is not None


@pytest.mark.T(3, 8)
@pytest.mark.parametrize(("said", "tester"), SAID)
def test_a_job_that_blocks_on_what_is_known_waits_for_the_same(said: str, tester: str) -> None:
    """As a worker finds it, and the manager reads what the worker found."""
    text = f"starting\n{said}\nand so on\n".encode()
    sought = patterns_of(JobSpec(argv=("true",), block_on=(parse_rule("known"),)))
    found = (compiled(pattern).search(text, 0, len(text)) for _, stream, pattern in sought if stream == "err")
    at = next((match.start() for match in found if match is not None), None)
    if at is None:
        assert tester.startswith(("command:./", "disk:/tmp")), "nobody knows how to test it"
    else:
        assert known_tester(text[at:].decode()) == tester


@pytest.mark.parametrize(
    "said",
    [
        'connection to server at "db.lab", port 5432 failed: FATAL:  password authentication failed for user "ada"',
        'connection to server at "db.lab", port 5432 failed: FATAL:  database "x" does not exist',
        "HTTPSConnectionPool(host='a.lab', port=443): Max retries exceeded with url: / (Caused by SSLError(1))",
        "slurm_load_jobs error: Invalid job id specified",
        "License path:  27000@licence.lab:\nFLEXnet Licensing error:-5,357.  No such feature exists",
        "/tmp/job.sh: line 3: echo: write error: No space left on device",
        "[pid 1502] GET https://store.lab/a",
        "100429 rows from https://store.lab/a",
        "line 503 while parsing https://store.lab/a",
    ],
)
def test_what_is_the_tasks_own_doing_is_not_known(said: str) -> None:
    text = said.encode()
    for _, _, pattern in patterns_of(JobSpec(argv=("true",), block_on=(parse_rule("known"),))):
        assert compiled(pattern).search(text, 0, len(text)) is None, pattern


@pytest.mark.parametrize(
    ("end", "blocks"), [(End.EXITED, True), (End.SIGNALLED, True), (End.TIMED_OUT, False)]
)
def test_what_is_known_counts_where_the_task_ended_by_itself(end: End, blocks: bool) -> None:
    spec = JobSpec(argv=("true",), block_on=(parse_rule("known; every 2m for 12h"),))
    known = BlockRule(on="known", tester="tcp:store.lab:80", at="site")
    rule = rule_for(spec, report(end, 1), known)
    assert (rule is not None) is blocks
    if rule is not None:
        assert (rule.tester, rule.policy) == ("tcp:store.lab:80", "every 2m for 12h")


@pytest.mark.parametrize(
    ("tester", "near"),
    [
        ("tcp:localhost:80", True),
        ("tcp:127.0.0.1:80", True),
        ("database:postgresql://localhost:5432/", True),
        ("ssh-auth:ada@localhost", True),
        ("tcp:localhost-2.lab:80", False),
        ("tcp:store.lab:80", False),
        ("tcp:10.127.0.1:80", False),
    ],
)
def test_what_is_on_every_machine_is_tested_where_it_was_missed(tester: str, near: bool) -> None:
    assert is_near(tester) is near


def test_a_piece_of_output_that_only_contains_what_is_known_is_not_what_was_found() -> None:
    assert known_tester("x ssh: connect to host login.lab port 22: refused") is None
    assert known_tester("cp: Disk quota exceeded") is None


@pytest.mark.parametrize("text", ["known", "known; every 2m for 12h", "KNOWN;every 2m for 12h"])
def test_what_is_known_is_a_rule_without_a_tester(text: str) -> None:
    rule = parse_rule(text)
    check_rule(rule)
    assert (rule.on, rule.tester) == ("known", "")
    assert parse_rule(rule_text(rule)) == rule


@pytest.mark.must("e")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("known -> tcp:a:1", "what was printed says what is tested"),
        ("known; every 2m for ever", "must be given up"),
        ("known; evry 2m", "not a policy"),
        ("known:curl -> tcp:a:1", "nothing that a rule can begin with"),
        ("exit:75", "is not a rule"),
    ],
)
def test_what_is_known_takes_nothing_but_a_policy(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        check_rule(parse_rule(text))


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
    assert "--block-on known, or --block-on 'stderr:" in hint(report(End.EXITED, 1), "", SAID[0][0])
    assert (
        hint(report(End.EXITED, 3), "fine", "") == "if this is not its fault: --block-on 'exit:3 -> TESTER'"
    )
    assert hint(report(End.TIMED_OUT, 0), "", said) == ""


@pytest.mark.parametrize(
    "text", ["", "Traceback\nValueError: 503\n", "a" * 100_000, "@: Permission denied (" * 200]
)
def test_anything_else_is_a_failure_like_any_other(text: str) -> None:
    assert rule_from(text, text) is None
