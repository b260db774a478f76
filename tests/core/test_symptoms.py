"""What real programs say when something outside is broken, and the rule that is proposed or applied for it."""

import re

import pytest

from tercel.core.blocking import (
    check_rule,
    hint,
    parse_rule,
    patterns_of,
    rule_for,
    rule_text,
    trigger_of,
)
from tercel.core.errors import UsageError
from tercel.core.model import BlockRule, JobSpec
from tercel.core.patterns import compiled
from tercel.core.reports import End, Report
from tercel.core.symptoms import SYMPTOMS, is_near, known_tester, rule_from
from tercel.testers.registry import Testers
from tests.core.said import SAID


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
        proposed = rule_from("", said)
        assert proposed is not None and not proposed[1].sure, "nobody knows how to test it"
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
        "curl: (22) The requested URL returned error: 404\n404 https://store.lab/a",
        "+ curl -f https://store.lab/a\ncurl: (22) The requested URL returned error: 404",
        "curl: (22) The requested URL returned error: 503\n+ curl https://store.lab/a",
        "curl: (56) Received HTTP code 403 from proxy after CONNECT\nhttps://store.lab/a",
        "--2026-11-17 02:30:40--  http://store.lab/a\nConnecting to store.lab:80... connected.\n"
        "HTTP request sent, awaiting response... 404 Not Found\n2026-11-17 02:30:40 ERROR 404: Not Found.",
        "fatal: unable to access 'https://git.lab/x/': The requested URL returned error: 403",
        "HTTPSConnectionPool(host='a.lab', port=443): Max retries exceeded with url: / (Caused by ResponseError('too many redirects'))",
        "Connection to store.lab port 22 [tcp/ssh] succeeded!",
        'error: commlib error: access denied (client IP resolved to host name "a")\n'
        'error: unable to contact qmaster using port 6444 on host "sge.lab"',
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?",
        'Error from server (NotFound): pods "x" not found',
        "ERROR 1045 (28000): Access denied for user 'ada'@'db.lab' (using password: YES)",
    ],
)
def test_what_is_the_tasks_own_doing_is_not_known(said: str) -> None:
    text = said.encode()
    for _, _, pattern in patterns_of(JobSpec(argv=("true",), block_on=(parse_rule("known"),))):
        assert compiled(pattern).search(text, 0, len(text)) is None, pattern


@pytest.mark.parametrize("name", ["ada:hunter2", "hunter2", "ghs_hunter2" + "x" * 400, "ada:h:2"])
@pytest.mark.parametrize("rest", ["/a?token=hunter2", "/a#hunter2", "?hunter2", "/"])
def test_no_secret_in_a_url_gets_into_what_is_tested(name: str, rest: str) -> None:
    found = known_tester(f"HTTPError: 503 Server Error: for url: https://{name}@store.lab{rest}\n")
    assert found in ("https://store.lab/a<500", "https://store.lab/<500")


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
    secret = "HTTPError: 503 Server Error: for url: https://ada:12345/hunter2@store.lab/a\n"
    assert "hunter2" not in (known_tester(secret) or "")
    assert rule_from("", secret) is None or "hunter2" not in str(rule_from("", secret))


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
        next(number for number, symptom in enumerate(SYMPTOMS) if re.search(symptom.said, said, re.MULTILINE))
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
