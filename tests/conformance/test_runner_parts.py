"""The parts of the spawner pool that tests of the whole cannot show well."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.runners import trees
from tercel.runners.channel import Channel, Message
from tercel.runners.pool import SpawnerPool
from tercel.runners.sandbox import Sandbox, Sweeper


@pytest.fixture
def sweeper(tmp_path: Path) -> Sweeper:
    (tmp_path / "trash").mkdir()
    return Sweeper(os.fsencode(tmp_path / "trash"), b"t")


def sweep(sweeper: Sweeper, tree: Path) -> int:
    """Returns the number of steps."""
    sweeper.take(os.fsencode(tree))
    steps = 0
    while sweeper.todo:
        sweeper.step()
        steps += 1
    return steps


def test_trees_of_any_depth_and_width_are_removed_in_small_steps(tmp_path: Path, sweeper: Sweeper) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    dig = "import os\nfor i in range(1100): os.mkdir('deeper' * 20); os.chdir('deeper' * 20)"
    subprocess.run([sys.executable, "-c", dig], cwd=tree, check=True)
    (tree / "wide").mkdir()
    for number in range(600):
        (tree / "wide" / f"{number}").write_text("")
    assert sweep(sweeper, tree) > 1100
    assert os.listdir(tmp_path) == ["trash"] and os.listdir(tmp_path / "trash") == []


def test_trash_that_somebody_removed_is_no_trouble(tmp_path: Path, sweeper: Sweeper) -> None:
    sweeper.add(b"gone")
    sweeper.step()
    assert not sweeper.todo
    (tmp_path / "trash").rmdir()
    sweeper.add(b"gone")
    sweeper.step()
    assert not sweeper.todo


def test_links_are_removed_and_not_followed(tmp_path: Path, sweeper: Sweeper) -> None:
    precious = tmp_path / "precious"
    (precious / "below").mkdir(parents=True)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(precious)
    sweep(sweeper, tree)
    (tmp_path / "link").symlink_to(precious)
    sweep(sweeper, tmp_path / "link")
    assert sorted(os.listdir(tmp_path)) == ["precious", "trash"]
    assert os.listdir(tmp_path / "trash") == []
    assert (precious / "below").is_dir()


def test_directories_that_a_task_closed_are_opened_and_removed(tmp_path: Path) -> None:
    """As an ordinary user, if this is root: root may enter anything."""
    program = (
        "import ctypes, os\n"
        "from tercel.runners.sandbox import Sweeper\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)\n"  # PR_SET_DUMPABLE: it owns its /proc/self again
        "os.makedirs('tree/a/b'); open('tree/a/b/f', 'w').close(); os.mkdir('trash')\n"
        "for path in ('tree/a/b', 'tree/a', 'tree'): os.chmod(path, 0)\n"
        "sweeper = Sweeper(b'trash', b't'); sweeper.take(b'tree')\n"
        "while sweeper.todo: sweeper.step()\n"
        "print(os.listdir('trash'))\n"
    )
    tmp_path.chmod(0o777)
    answer = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.stdout == "[]\n", answer.stderr


def test_sandbox_is_seen_to_be_used_whatever_its_stamps_say(tmp_path: Path, sweeper: Sweeper) -> None:
    sandbox = Sandbox(os.fsencode(tmp_path / "lane"), sweeper)
    sandbox.prepare()
    place = tmp_path / "lane" / "0"
    for long_ago in (0.0, 1e9):  # begun right after the last change was seen, and long after
        inode = place.stat().st_ino
        sandbox.clear(sandbox._seen_at + long_ago)
        assert sandbox.ready and place.stat().st_ino == inode
        before = place.stat()
        (place / "file").write_text("")
        os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
        sandbox.clear(sandbox._seen_at + long_ago)
        assert not sandbox.ready and not place.exists()
        sandbox.prepare()
    (place / "file").write_text("")
    (place / "file").unlink()
    sandbox.clear(sandbox._seen_at + 1e9)
    assert sandbox.ready


def test_children_are_found_on_kernels_without_the_children_file(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sh", "-c", "sleep 1000 & echo; wait"], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        usual = trees.descendants(os.getpid())
        try:
            with monkeypatch.context() as patch:
                patch.setattr(os.path, "exists", lambda path: False)
                assert sorted(trees.descendants(os.getpid())) == sorted(usual)
            assert len(trees.descendants(child.pid)) == 1
            assert child.pid in usual
        finally:  # others' children may be among them: of those, none is ours to end
            trees.signal_all([*trees.descendants(child.pid), child.pid], 9)


def test_process_that_cannot_be_killed_is_given_up_and_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with subprocess.Popen(["sleep", "1000"]) as unkillable:
        stuck: set[int] = set()
        with monkeypatch.context() as patch:
            patch.setattr(trees, "signal_all", lambda pids, number: None)
            assert trees.kill_descendants(lambda: True, stuck, patience_s=0.0) == 1
            assert stuck == {unkillable.pid}
            assert trees.kill_descendants(lambda: True, stuck, patience_s=1e9) == 0
        unkillable.kill()
    assert trees.kill_descendants(lambda: False, stuck, patience_s=0.0) == 0
    assert stuck == set()


def test_search_for_strays_spares_the_searcher_and_those_above() -> None:
    """A worker may have been started from within a task, and carry the same mark as what it ends."""
    program = (
        "import subprocess, sys\n"
        "from tercel.runners import trees\n"
        "marked = subprocess.Popen(['sleep', '1000'])\n"
        "other = subprocess.Popen(['sleep', '1000'], env={'TERCEL_SANDBOX': '/dir/sandboxes2/1'})\n"
        "print(trees.kill_strays(b'TERCEL_SANDBOX=/dir/sandboxes/', frozenset(), 0.0), marked.wait(), other.poll())\n"
        "other.kill(); other.wait()\n"
    )
    answer = subprocess.run(
        ["sh", "-c", '"$0" -c "$1"; true', sys.executable, program],
        env=os.environ | {"TERCEL_SANDBOX": "/dir/sandboxes/1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "1 -9 None\n", answer.stderr


def test_messages_of_any_size_pass_whole_and_in_order() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        sender, receiver = Channel(ours.fileno()), Channel(theirs.fileno())
        sent: list[Message] = [
            ("n", number, b"x" * size) for number, size in enumerate((0, 1, 70_000, 3_000_000))
        ]
        for message in sent:
            sender.send([message, message])
        received: list[Message] = []
        while len(received) < 2 * len(sent):
            received += receiver.receive()
            if sender.unsent:
                sender.flush()
        assert received == [message for message in sent for _ in range(2)]
        assert receiver.receive() == []
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            receiver.receive()
        theirs.close()
        sender.send([("lost",)])
        assert not sender.unsent


def test_arguments_for_containers_that_no_shell_would_take_are_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"TERCEL_CONTAINER_ARGS=--x 'unbalanced: .* no closing quotation"):
        SpawnerPool(tmp_path, "node-7", container_args="--x 'unbalanced")
