"""Every line of the papers that this version answers to has a test that is marked with it (`T(4)`), or that is named here.

Read off by parsing the tests, not by running them. Which tests show a line: `LINES=T4 pytest -rP tests/test_requirements.py`.
"""

import ast
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent
PAPERS = "KTBOC"

RECOVERY = [
    *(f"T{line}" for line in range(1, 14)),
    "C1",
    *(f"C{line}" for line in range(5, 11)),
    "C11",
    "C12",
    "C13",
    "C15",
]

BESIDE = {
    # What the papers only planned.
    "queue and table are changed together": "core/test_queue_and_table.py",
    "throttles follow what is seen: releases": "core/test_waves.py::test_a_service_with_few_places_is_not_overrun",
    # What Tapis does.
    "its states and what leads from one to another": "core/test_states.py::test_from_everywhere_an_end_can_be_reached",
    "its default policy": "core/test_policies.py::test_the_default_policy_is_tapis_own",
    "its settings of throttles": "core/test_policies.py::test_a_profile_has_the_papers_settings",
    "so many are released as there is room for": "acceptance/test_outages.py::test_a_quota_lets_so_many_go_on_as_it_has_room_for",
    "one owner's condition is not another's": "api/test_conditions.py::test_a_user_sees_and_changes_only_their_own",
    # Its testers of databases, transmissions and suspensions are stubs.
    "a tester of databases answers": "conformance/test_testers.py::test_the_real_postgresql_answers",
    "testers of transmissions answer: connections": "conformance/test_testers.py::test_tcp_says_who_refused",
    "testers of transmissions answer: HTTP": (
        "conformance/test_testers.py::test_http_is_cleared_by_2xx_and_3xx_and_follows_nothing"
    ),
    "testers of transmissions answer: SSH": (
        "acceptance/test_outages.py::test_tasks_wait_while_a_server_of_ssh_refuses_connections"
    ),
    "what is suspended waits: for a queue": "core/scenarios/queue_disabled.txt",
    "what is suspended waits: for a system or an application": (
        "core/test_blocked_edges.py::test_what_asks_about_a_switch_hears_at_once_that_it_is_on"
    ),
    "what is suspended waits: for a worker, node or site": (
        "core/test_blocked_edges.py::test_tasks_wait_while_a_worker_that_they_ask_about_takes_nothing"
    ),
    "what is suspended waits: held by its owner": "core/scenarios/hold.txt",
    "giving up fails all that wait": "acceptance/test_blocked.py::test_what_stays_broken_is_given_up_with_that_reason",
    # What it gets wrong.
    "a crash between blocked and the post makes no zombies": (
        "faults/test_manager_killed_at_every_commit.py::"
        "test_nothing_is_lost_or_repeated_whichever_commit_the_manager_dies_at"
    ),
    "a step makes not one test too many": (
        "core/test_policies.py::test_a_stepwise_policy_makes_so_many_tests_at_each_step_and_not_one_more"
    ),
    "a restart does not lose the step": "core/scenarios/blocked_manager_killed.txt",
    "three hours are 10,800 s": "core/test_faults.py::test_times_are_kept_in_the_unit_that_was_meant",
    "a tester that raises harms its own condition only": "testers/test_attackers.py",
}


def marked(node: ast.AST) -> Iterator[str]:
    """The lines of all `pytest.mark.T(3, 4)` in it."""
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            of = call.func.value
            if call.func.attr in PAPERS and isinstance(of, ast.Attribute) and of.attr == "mark":
                yield from (f"{call.func.attr}{ast.literal_eval(line)}" for line in call.args)


@cache
def lines_of_tests() -> dict[str, set[str]]:
    """Every test, as path::name, with the lines that it or its module is marked with."""
    found = {}
    for path in sorted(ROOT.rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        functions = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        ]
        of_module = {line for node in tree.body if isinstance(node, ast.Assign) for line in marked(node)}
        name = path.relative_to(ROOT).as_posix()
        found[name] = of_module
        for function in functions:
            own = {line for mark in function.decorator_list for line in marked(mark)}
            found[f"{name}::{function.name}"] = own | of_module
    return found


@pytest.mark.must("a")
@pytest.mark.parametrize("line", RECOVERY)
def test_every_line_has_a_test(line: str) -> None:
    showing = [name for name, lines in lines_of_tests().items() if "::" in name and line in lines]
    if line == os.environ.get("LINES"):
        print("\n".join(showing))
    assert showing, f"no test is marked with {line}"


@pytest.mark.must("a")
@pytest.mark.parametrize("what", BESIDE)
def test_what_else_was_asked_for_has_its_test(what: str) -> None:
    name = BESIDE[what]
    assert name in lines_of_tests() or (ROOT / name).is_file(), f"there is no {name}"
