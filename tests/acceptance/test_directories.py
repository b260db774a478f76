"""Looking into the directory of a real worker: what tasks left there, what runs, and its log."""

import shutil

import pytest

from tercel.core.errors import Forbidden, NotFound
from tercel.core.model import Role
from tercel.sdk import AsyncClient
from tests.lab import Lab
from tests.processes import eventually

pytestmark = pytest.mark.C(15)

LEAVES = 'cd "$TERCEL_SANDBOX" && mkdir out && echo wrong > out/log && ln -s /etc/passwd out/link && exit 3'
RUNS = 'cd "$TERCEL_SANDBOX" && echo "so far" > now && while [ ! -e "$GO" ]; do sleep 0.02; done'


async def test_what_tasks_leave_at_a_worker_is_seen_from_elsewhere(lab: Lab) -> None:
    await lab.manager_up()
    worker = lab.worker("w", 2, "", "--log", str(lab.root / "worker.log"))
    await lab.workers_online(1)
    name, dir, go = lab.worker_id(), lab.worker_dir("w"), lab.root / "go"
    async with lab.client() as client:
        bob = (await client.create_token(Role.USER, "bob")).secret
        failed = await client.submit_command(LEAVES, sandbox="keep-on-failure")
        running = await client.submit_command(RUNS, env={"GO": str(go)})
        await failed.wait()

        async def so_far() -> bytes:
            try:
                return (await client.sandbox_file(name, running.id, 0, "now")).data
            except NotFound:
                return b""  # it has only just begun

        assert await eventually(so_far, "the running task's file is seen") == b"so far\n"
        assert "Joined the manager" in (await client.worker_log(name)).data.decode()
        kept = await client.sandbox_files(name, failed.id, 0)
        assert {file.path: file.kind for file in kept.files} == {
            "out": "directory",
            "out/log": "file",
            "out/link": "link",
        }
        for path in ("out/link", "../../worker-id", str(dir / "worker-id")):
            with pytest.raises(NotFound):
                await client.sandbox_file(name, failed.id, 0, path)
        go.touch()
        await running.wait()

    async with AsyncClient(lab.url, bob) as other:
        for question in (other.sandbox_files(name, 1, 0), other.sandbox_file(name, 1, 0, "out/log")):
            with pytest.raises(NotFound):
                await question
        for question in (other.worker_directory(name), other.worker_log(name)):
            with pytest.raises(Forbidden):
                await question

    # What nobody knows of: of a job that this manager never had, and of nobody at all.
    shutil.copytree(dir / "kept" / f"1.0.{kept.attempt}", dir / "kept/99.0.5", symlinks=True)
    (dir / "thesis").mkdir()
    seen = lab.json("worker", "look", name)
    assert seen["dir"] == str(dir)
    assert {(one["id"], one["known"]) for one in seen["kept"]} == {("1.0", True), ("99.0", False)}
    assert [one["path"] for one in seen["left"]] == [str(dir / "thesis")]
    assert any("does not know" in finding for finding in seen["findings"])
    assert lab.ok("worker", "look", name, "1.0", "--read", "out/log") == "wrong\n"

    worker.kill()
    await lab.workers_online(0)
    gone = lab.run("worker", "look", name)
    assert gone.returncode == 2
    assert "offline since" in gone.stderr and str(dir) in gone.stderr
