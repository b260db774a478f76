"""Who may do what: tokens and their roles, the default of loopback only, and errors that say what to do."""

import stat
import sys
from pathlib import Path

from tercel.wire.messages import PROTOCOL
from tests.lab import HASTY, RECORD, Lab

FOREIGN_WORKER = """
import sys
import tercel.wire.messages as messages
messages.PROTOCOL = 999
from tercel.cli import main
sys.exit(main(sys.argv[1:]))
"""
"""A worker of another release, which speaks another protocol."""


def token_of(lab: Lab, user: str, role: str = "user") -> dict[str, str]:
    """An environment with a new token of this user in it."""
    issued = lab.json("token", "create", "--role", role, "--user", user)
    return {"TERCEL_TOKEN": issued["secret"], "TERCEL_SERVER": lab.url}


async def test_users_see_and_change_only_their_own_jobs(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    ada, bob = token_of(lab, "ada"), token_of(lab, "bob")
    assert lab.ok("submit", "-J", "secret", "sleep 1000", env=ada) == "1\n"
    assert lab.ok("submit", "-J", "other", "echo bobs", env=bob) == "2\n"
    lab.ok("submit", "-J", "admins", "true")

    assert [job["id"] for job in lab.json("list", "--all", env=ada)["jobs"]] == [1]
    assert [job["id"] for job in lab.json("list", "--all", env=bob)["jobs"]] == [2]
    assert {job["id"]: job["owner"] for job in lab.json("list", "--all")["jobs"]}.items() >= {
        1: "ada",
        2: "bob",
    }.items()
    assert lab.json("status", env=bob)["jobs"] <= 1
    for words in (
        ("show", "1"),
        ("show", "1.0"),
        ("logs", "1.0"),
        ("cancel", "1"),
        ("retry", "1"),
        ("explain", "1.0"),
        ("wait", "1"),
    ):
        refused = lab.run(*words, env=bob)
        assert refused.returncode == 2, words
        assert "no job 1" in refused.stderr, words
        assert "secret" not in refused.stdout + refused.stderr
    assert lab.json("cancel", "all", env=bob)["cancelled"] <= 1
    assert lab.json("show", "1", env=ada)["counts"]["cancelled"] == 0
    assert lab.json("cancel", "1")["cancelled"] == 1, "an admin may"
    lab.run("wait", "2", env=bob)


async def test_roles_limit_what_a_token_is_good_for(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    ada, machine = token_of(lab, "ada"), token_of(lab, "node7", "worker")
    for words, who in (
        (("token", "create"), ada),
        (("token", "list"), ada),
        (("worker", "drain", "x"), ada),
        (("submit", "true"), machine),
        (("list",), machine),
        (("status",), machine),
    ):
        refused = lab.run(*words, env=who)
        assert refused.returncode == 2, words
        assert refused.stderr.startswith("tercel: ")
        assert "Traceback" not in refused.stderr
    as_worker = lab.run("worker", lab.url, "--dir", str(lab.root / "x"), env=ada)
    assert as_worker.returncode == 2
    assert "does not accept this token for a worker" in as_worker.stderr


async def test_a_revoked_token_is_of_no_use(lab: Lab) -> None:
    await lab.up("--cpus", "1")
    issued = lab.json("token", "create", "--role", "user", "--user", "ada")
    ada = {"TERCEL_TOKEN": issued["secret"], "TERCEL_SERVER": lab.url}
    assert lab.run("list", env=ada).returncode == 0
    lab.ok("token", "revoke", issued["id"])
    refused = lab.run("list", env=ada)
    assert refused.returncode == 2
    assert "token" in refused.stderr


async def test_tokens_are_never_shown_twice_nor_kept_readable(lab: Lab) -> None:
    up = await lab.up("--cpus", "1")
    file = lab.work / "ada.token"
    lab.ok("token", "create", "--role", "user", "--user", "ada", "-o", str(file))
    secret = file.read_text().strip()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert secret not in lab.ok("token", "list")
    assert lab.json("list", env={"TERCEL_TOKEN_FILE": str(file)})["jobs"] == []
    assert stat.S_IMODE(lab.access_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(lab.data.stat().st_mode) == 0o700
    access = lab.access()
    for text in (up.said, up.wrote, Path(f"/proc/{up.pid}/cmdline").read_text()):
        assert access.token not in text
        assert access.worker_token not in text
    up.kill()
    assert secret.partition(".")[2].encode() not in (lab.data / "tercel.db").read_bytes()


def test_listening_beyond_this_machine_without_tokens_is_refused(lab: Lab) -> None:
    for command in ("manager", "up"):
        refused = lab.run(command, "--host", "0.0.0.0", "--port", str(lab.port), "--data", str(lab.data))
        assert refused.returncode == 2, command
        assert "listening on 0.0.0.0 is refused while no token exists" in refused.stderr
        assert "tercel token create" in refused.stderr
    lab.ok("token", "create", "--role", "worker", "--data", str(lab.data))


async def test_listening_beyond_this_machine_works_once_there_is_a_token(lab: Lab) -> None:
    lab.ok("token", "create", "--role", "worker", "--data", str(lab.data))
    manager = lab.manager("--host", "0.0.0.0")
    await lab.listening(manager)
    assert lab.run("status").returncode == 0


async def test_a_worker_with_a_wrong_token_is_told_so(lab: Lab) -> None:
    await lab.manager_up()
    for token in ("nonsense", "00000000.aaaaaaaaaaaaaaaaaaaaaaaa"):
        worker = lab.run("worker", lab.url, "--dir", str(lab.root / "x"), env={"TERCEL_TOKEN": token})
        assert worker.returncode == 2
        assert "does not accept this token for a worker" in worker.stderr
        assert "tercel token create --role worker" in worker.stderr
        assert "Traceback" not in worker.stderr


async def test_a_worker_of_another_protocol_is_told_so(lab: Lab) -> None:
    await lab.manager_up()
    words = ("worker", lab.url, "--dir", str(lab.root / "x"))
    worker = lab.start(
        sys.executable, "-c", FOREIGN_WORKER, *words, env={"TERCEL_TOKEN": lab.access().worker_token}
    )
    assert await worker.ended() == 2, worker.said
    assert f"this manager speaks protocol {PROTOCOL}, the worker 999: install the same version" in worker.said
    assert lab.json("pool", "--all")["workers"] == []


async def test_two_workers_cannot_share_a_directory(lab: Lab) -> None:
    await lab.manager_up()
    first = lab.worker("w", 1, "", *HASTY)
    await lab.workers_online(1)
    second = lab.worker("w", 1, "", *HASTY)
    assert await second.ended() == 2
    assert "another worker uses" in second.said
    assert first.alive
    id = await lab.submit(lab.shell(RECORD))
    await lab.done([id])


async def test_the_same_key_twice_is_one_job(lab: Lab) -> None:
    await lab.manager_up()
    async with lab.client() as client:
        first = await client.submit(lab.shell(RECORD, key="once"))
        again = await client.submit(lab.shell(RECORD, key="once"))
    assert (first.id, first.repeated) == (again.id, False)
    assert again.repeated
