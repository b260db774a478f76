"""A cache whose users are killed, again and again, at any moment."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.data.cache import Cache
from tests.conformance.cache_users import NEEDED
from tests.conformance.caches import agrees, files_in

ROOM = 20_000
KILLS = 40
ROOT = Path(__file__).parents[2]


class Users:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.cache_users"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def ask(self, *words: object) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(*words, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())


@pytest.fixture
def users() -> Iterator[Users]:
    users = Users()
    yield users
    os.killpg(users.process.pid, signal.SIGKILL)
    users.process.communicate()


@pytest.mark.must("c")
def test_killed_in_the_middle_of_anything_they_leave_it_whole(users: Users, tmp_path: Path) -> None:
    """Two at work, of whom one is killed at a random moment, forty times. The one who stays checks what it uses all the while."""
    chance = random.Random(6)
    dir = tmp_path / "cache"
    running = [users.ask("use", dir, ROOM, f"user{number}", number) for number in range(2)]
    for kill in range(KILLS):
        time.sleep(chance.uniform(0.0, 0.03))  # any moment will do: nothing is waited for
        victim = running.pop(0)
        os.kill(victim, signal.SIGKILL)
        assert users.ask("reap", victim) == signal.SIGKILL, "it failed before it was killed"
        watcher = Cache(dir, ROOM, "watcher")
        watcher.open()
        with watcher._alone():
            agrees(watcher)
            assert sum(files_in(dir).values()) <= ROOM
        watcher.close()
        running.append(users.ask("use", dir, ROOM, f"user{kill % 2}", kill + 2))
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        assert users.ask("reap", pid) == signal.SIGKILL
    last = Cache(dir, ROOM, "last")
    last.open()
    assert os.listdir(dir / "pins") == ["last"]
    assert not list((dir / "trash").iterdir())
    last.close()


@pytest.mark.must("c")
def test_what_several_need_is_fetched_once(users: Users, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pids = [users.ask("need", tmp_path / "cache", ROOM, f"user{number}", log) for number in range(4)]
    assert [users.ask("reap", pid) for pid in pids] == [0] * 4
    assert sorted(map(int, log.read_text().split())) == list(range(NEEDED))
