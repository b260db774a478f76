"""One suite for all testers: each is as its contract says, with real servers on loopback."""

import contextlib
import socket
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tercel.core.conditions import Place, Verdict
from tercel.core.errors import UsageError
from tercel.testers import conformance
from tercel.testers import http as http_module
from tercel.testers.commands import CommandTester
from tercel.testers.contract import Surroundings, Tester
from tercel.testers.databases import DatabaseTester
from tercel.testers.files import file_testers
from tercel.testers.http import HttpTester
from tercel.testers.registry import Testers
from tercel.testers.ssh import SshAuthTester, SshTester
from tercel.testers.storage import GetTester, PutTester
from tercel.testers.tcp import DnsTester, TcpTester
from tercel.testers.times import TimeTester
from tests.testers import servers

pytestmark = [pytest.mark.T(8), pytest.mark.must("d")]

Case = tuple[Tester, str, str]
"""A tester, a text that is cleared, one that is not."""
MAIL = b"220 mail\r\n" * 60
MYSQL_FULL = b"\x17\x00\x00\x00\xff\x10\x04Too many connections"
MYSQL = b"\x10\x00\x00\x00\x0a8.0.36-fake\x00\x01\x02\x03"


def postgres_like(connection: socket.socket) -> None:
    if connection.recv(8) == b"\0\0\0\x08\x04\xd2\x16\x2f":
        connection.sendall(b"N")


class Stage:
    """What the cases below start; all of it is ended with the test."""

    def __init__(self, directory: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.monkeypatch = monkeypatch
        self._stack = stack

    def port(self, serve: servers.Serve = servers.hold) -> int:
        return self._stack.enter_context(servers.listening(serve))

    def closed(self) -> int:
        return self._stack.enter_context(servers.closed_port())

    def http(self) -> int:
        return self._stack.enter_context(servers.http()).server_port

    def https(self) -> int:
        certificate, context = servers.certificate(self.directory)
        self.monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        http_module._tls.cache_clear()
        self._stack.callback(http_module._tls.cache_clear)
        return self._stack.enter_context(servers.http(context)).server_port

    def ends(self, close: Callable[[], None]) -> None:
        self._stack.callback(close)

    def sshd(self) -> servers.Sshd:
        sshd = servers.Sshd(self.directory / "sshd")
        self._stack.callback(sshd.close)
        return sshd

    def postgresql(self) -> int:
        return self._stack.enter_context(servers.postgresql())

    def file_tester(self, kind: str) -> Tester:
        return next(tester for tester in file_testers() if tester.kind == kind)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack, monkeypatch)


def https(stage: Stage) -> Case:
    port = stage.https()
    return (
        HttpTester("https"),
        f"//localhost:{port}/",
        f"//127.0.0.1:{port}/",
    )  # the certificate names localhost


def ssh(stage: Stage) -> Case:
    return (
        SshTester(),
        f"127.0.0.1:{stage.sshd().port}",
        f"127.0.0.1:{stage.port(servers.say(MAIL))}",
    )


def ssh_auth(stage: Stage) -> Case:
    sshd = stage.sshd()
    return SshAuthTester(sshd.options()), f"root@127.0.0.1:{sshd.port}", f"nobody@127.0.0.1:{sshd.port}"


def sqlite(stage: Stage) -> Case:
    path = stage.directory / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
    (stage.directory / "y.db").write_text(
        "this is not a database at all, but long enough to be taken for one"
    )
    return DatabaseTester(), f"sqlite://{path}", f"sqlite://{stage.directory}/y.db"


def dir(stage: Stage) -> Case:
    (stage.directory / "file").touch()
    return stage.file_tester("dir"), str(stage.directory), f"{stage.directory}/file"


def get(stage: Stage) -> Case:
    sshd = stage.sshd()
    stage.monkeypatch.setenv("TERCEL_SSH_CONFIG", sshd.options()[1])
    (stage.directory / "x").touch()
    at = f"sftp://root@127.0.0.1:{sshd.port}{stage.directory}"
    tester = GetTester()
    stage.ends(tester.close)
    return tester, f"{at}/x", f"{at}/none"


CASES: dict[str, Callable[[Stage], Case]] = {
    "tcp": lambda s: (TcpTester(), f"127.0.0.1:{s.port()}", f"127.0.0.1:{s.closed()}"),
    "dns": lambda s: (DnsTester(), "localhost", "nowhere.invalid"),
    "http": lambda s: (HttpTester("http"), f"//127.0.0.1:{(port := s.http())}/", f"//127.0.0.1:{port}/500"),
    "https": https,
    "ssh": ssh,
    "ssh-auth": ssh_auth,
    "database:postgresql": lambda s: (
        DatabaseTester(),
        f"postgresql://127.0.0.1:{s.port(postgres_like)}/lab",
        f"postgresql://127.0.0.1:{s.port(servers.say(b'HTTP/1.1 400 what?'))}/lab",
    ),
    "database:mysql": lambda s: (
        DatabaseTester(),
        f"mysql://127.0.0.1:{s.port(servers.say(MYSQL))}",
        f"mysql://127.0.0.1:{s.port(servers.say(MYSQL_FULL))}",
    ),
    "database:sqlite": sqlite,
    "file": lambda s: (s.file_tester("file"), str(s.directory), f"{s.directory}/none"),
    "dir": dir,
    "mount": lambda s: (s.file_tester("mount"), "/proc", str(s.directory)),
    "writable": lambda s: (s.file_tester("writable"), str(s.directory), "/proc/self/task"),
    "disk": lambda s: (s.file_tester("disk"), f"{s.directory} >= 1K", f"{s.directory}>=900P"),
    "get": get,
    "get:http": lambda s: (
        GetTester(),
        f"http://127.0.0.1:{(port := s.http())}/",
        f"http://127.0.0.1:{port}/500",
    ),
    "put": lambda s: (PutTester(), f"file://{s.directory}/new/", "/proc/self/"),
    "command": lambda s: (CommandTester(), "echo room=3", "echo the quota is used up; exit 1"),
    "time": lambda s: (TimeTester(), "2020-01-01T10:00", "2999-01-01"),
}


@pytest.mark.parametrize("name", CASES)
def test_each_is_as_a_tester_should_be(name: str, stage: Stage) -> None:
    tester, cleared, not_cleared = CASES[name](stage)
    assert tester.kind == name.partition(":")[0]
    assert conformance.check(tester, cleared, not_cleared) == []


def test_the_suite_is_over_all_that_are_built_in() -> None:
    assert {name.partition(":")[0] for name in CASES} == {
        row.kind for row in Testers().kinds() if not row.origin
    }


async def ask(tester: Tester, text: str, limit_s: float = 30.0) -> Verdict:
    return await tester.test(tester.normalise(text), Surroundings(limit_s=limit_s))


# -- how each is written ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "normal", "place"),
    [
        ("tcp: Licence.LAB.:27000 ", "tcp:licence.lab:27000", Place.SITE),
        ("TCP:[0:0::1]:80", "tcp:[::1]:80", Place.SITE),
        ("tcp:bücher.example:1", "tcp:xn--bcher-kva.example:1", Place.SITE),
        ("dns:Store.Lab.", "dns:store.lab", Place.SITE),
        ("http://Store.LAB:80", "http://store.lab/", Place.SITE),
        ("https://store.lab:443/a?b=C#d", "https://store.lab/a?b=C", Place.SITE),
        ("https://[::1]:8443/x", "https://[::1]:8443/x", Place.SITE),
        ("https://store.lab/a?b=c < 500", "https://store.lab/a?b=c<500", Place.SITE),
        ("https://store.lab<400", "https://store.lab/", Place.SITE),
        ("ssh:Login.lab:22", "ssh:login.lab", Place.SITE),
        ("ssh-auth:ada@login.lab:2222", "ssh-auth:ada@login.lab:2222", Place.SITE),
        ("database:postgres://db.lab/lab", "database:postgresql://db.lab:5432/lab", Place.SITE),
        ("database:mariadb://db.lab", "database:mysql://db.lab:3306", Place.SITE),
        ("database:sqlite:////data//x.db", "database:sqlite:///data/x.db", Place.SITE),
        ("file:/data/../data/ready/", "file:/data/ready", Place.SITE),
        ("disk:/scratch >= 20G", "disk:/scratch>=20G", Place.WORKER),
        ("disk:/scratch>=20480M", "disk:/scratch>=20G", Place.WORKER),
        ("disk:/scratch>=1500B", "disk:/scratch>=1500B", Place.WORKER),
        ("disk:/scratch>=8000P", "disk:/scratch>=8000P", Place.WORKER),
        ("get: S3://Lab/Key ", "get:s3://Lab/Key", Place.SITE),
        ("get:sftp://Ada@Store.LAB/X", "get:sftp://Ada@store.lab/X", Place.SITE),
        ("put:/data/out/", "put:/data/out/", Place.SITE),
        ("command:  ./quota-ok.sh a:b ", "command:./quota-ok.sh a:b", Place.SITE),
        ("time:9:00 - 17:30", "time:09:00-17:30", Place.MANAGER),
        ("time:fri-mon,Wed 22:00-06:00", "time:Mon,Wed,Fri,Sat,Sun 22:00-06:00", Place.MANAGER),
        ("time:2026-12-24T18:00", "time:2026-12-24T18:00:00", Place.MANAGER),
    ],
)
def test_who_means_the_same_writes_the_same(written: str, normal: str, place: Place) -> None:
    testers = Testers()
    assert testers.normalise(written) == (normal, place)
    assert testers.normalise(normal) == (normal, place)


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "tcp",
            "tcp:",
            "tcp:lab",
            "tcp:lab:0",
            "tcp:lab:65536",
            "tcp:lab:٣",
            "tcp:::1:80",
            "tcp:-oProxy:22",
            "tcp:a b:1",
        ),
        *(
            "tcp:1.2.3:1",
            "tcp:1.2.3.4.5:1",
            "tcp:a..b:1",
            "tcp:[fe80::1%eth0]:1",
            "dns:1.2.3.4",
            "dns:::1",
            "dns:a/b",
        ),
        *(
            "http:store.lab",
            "http://",
            "http:///x",
            "http://ada:secret@store.lab/",
            "http://store.lab/a b",
            "http://a:b/",
            "http://store.lab/a<50",
            "http://store.lab/a<600",
            "http://store.lab/a<500/b",
        ),
        *(
            "http://store.lab/\r\nX: y",
            "https://[::1/",
            "ssh:-oProxyCommand=x",
            "ssh:ada@login.lab",
            "ssh-auth:login.lab",
        ),
        *(
            "ssh-auth:-oX@login.lab",
            "ssh-auth:a b@login.lab",
            "database:oracle://x",
            "database:postgresql://ada:x@db.lab/",
        ),
        *(
            "database:mysql://db.lab/a/b",
            "database:sqlite://x.db",
            "file:data",
            "file:~/x",
            "disk:/scratch",
            "disk:/x>=lots",
        ),
        *(
            "disk:/x>=",
            "disk:/x>=0",
            "disk:/x>=8001P",
            "disk:/x>=999999E",
            "disk:/x>=9999999999999999999999999999P",
            "command:",
            "command:a\0b",
            "time:25:00-26:00",
            "time:9-17",
            "time:Xyz 09:00-17:00",
            "time:soon",
        ),
        *(
            "time:10:00-10:00",
            "time:0001-01-01T00:00",
            "mount:",
            "get:x",
            "get:https://ada:hunter2@store.lab/x",
            "put:tercel:blake3:12",
            "put:/data/../etc/",
            "put:file://",
            "writable:x",
            "dir:./x",
            "tcp:" + "a" * 5000 + ":1",
        ),
    ],
)
def test_what_means_nothing_is_refused_with_words(wrong: str) -> None:
    with pytest.raises(UsageError) as caught:
        Testers().normalise(wrong)
    assert len(str(caught.value)) > 10


def test_a_password_is_not_repeated_in_the_refusal() -> None:
    with pytest.raises(UsageError) as caught:
        Testers().normalise("https://ada:hunter2@store.lab/")
    assert "hunter2" not in str(caught.value)


# -- what each sees -----------------------------------------------------------------------------------------


async def test_tcp_reaches_ipv6_and_names_with_several_addresses(stage: Stage) -> None:
    assert (await ask(TcpTester(), f"localhost:{stage.port()}")).cleared
    with servers.listening(host="::1") as port:
        assert (await ask(TcpTester(), f"[::1]:{port}")).cleared


async def test_tcp_says_who_refused(stage: Stage) -> None:
    port = stage.closed()
    assert (await ask(TcpTester(), f"127.0.0.1:{port}")).note == f"127.0.0.1:{port}: connection refused"


@pytest.mark.parametrize(("path", "cleared"), [("204", True), ("302", True), ("404", False), ("500", False)])
async def test_http_is_cleared_by_2xx_and_3xx_and_follows_nothing(path: str, cleared: bool) -> None:
    with servers.http() as server:
        url = f"//127.0.0.1:{server.server_port}/{path}"
        verdict = await ask(HttpTester("http"), url)
        assert (verdict.cleared, verdict.note) == (cleared, f"http:{url} answers {path}")
        assert server.asked == [f"/{path}"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("path", "bound", "cleared"),
    [
        ("204", "<500", True),
        ("401", "<500", True),
        ("405", "<500", True),
        ("429", "<500", False),
        ("500", "<500", False),
        ("503", "<500", False),
        ("503", "<504", False),
        ("302", "<300", False),
    ],
)
async def test_http_is_cleared_by_what_is_below_a_bound_but_not_by_come_back_later(
    path: str, bound: str, cleared: bool
) -> None:
    with servers.http() as server:
        url = f"//127.0.0.1:{server.server_port}/{path}"
        verdict = await ask(HttpTester("http"), f"{url}{bound}")
        assert (verdict.cleared, verdict.note) == (cleared, f"http:{url} answers {path}")
        assert server.asked == [f"/{path}"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("query", "least", "most"),
    [
        ("503?after=120", 120, 120),
        ("429?after=120", 120, 120),
        ("429?after=Fri,_31_Dec_2999_23:59:59_GMT", 86400, 1e12),
        ("503?after=Fri,_31_Dec_1999_23:59:59_GMT", 0, 0),
        ("503?after=never", 0, 0),
        ("503?after=-5", 0, 0),
        ("500?after=120", 0, 0),
        ("503", 0, 0),
    ],
)
async def test_a_busy_server_says_when_to_come_back(
    query: str, least: float, most: float, stage: Stage
) -> None:
    verdict = await ask(HttpTester("http"), f"//127.0.0.1:{stage.http()}/{query}")
    assert not verdict.cleared and least <= verdict.not_before_s <= most


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 2x0 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X-Flood: " + b"x" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 103 Early\r\n\r\n" * 20_000,
        b"\0" * 200_000,
        b"",
    ],
)
async def test_what_answers_in_no_http_is_not_cleared(said: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(said)

    with servers.listening(serve) as port:
        verdict = await ask(HttpTester("http"), f"//127.0.0.1:{port}/")
    assert not verdict.cleared and verdict.note


async def test_a_certificate_that_is_not_valid_is_named_as_the_reason(stage: Stage) -> None:
    port = stage.https()
    stage.monkeypatch.delenv("SSL_CERT_FILE")
    http_module._tls.cache_clear()
    verdict = await ask(HttpTester("https"), f"//localhost:{port}/")
    assert not verdict.cleared and "its certificate is not valid: self" in verdict.note


async def test_ssh_auth_tells_who_is_let_in_from_who_is_not(stage: Stage) -> None:
    sshd = stage.sshd()
    at = f"root@127.0.0.1:{sshd.port}"
    assert (await ask(SshAuthTester(sshd.options("id")), at)).cleared
    refused = await ask(SshAuthTester(sshd.options("stranger")), at)
    assert not refused.cleared and "Permission denied" in refused.note


async def test_a_host_that_changed_its_key_is_not_let_pass(stage: Stage) -> None:
    sshd = stage.sshd()
    options = sshd.options()
    known = sshd.directory / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {(sshd.directory / 'stranger.pub').read_text()}")
    verdict = await ask(SshAuthTester(options), f"root@127.0.0.1:{sshd.port}")
    assert not verdict.cleared and "Host key verification failed" in verdict.note


async def test_the_real_postgresql_answers(stage: Stage) -> None:
    port = stage.postgresql()
    tester = DatabaseTester()
    verdict = await ask(tester, f"postgresql://127.0.0.1:{port}/postgres")
    while not verdict.cleared:  # it is just starting
        verdict = await ask(tester, f"postgresql://127.0.0.1:{port}/postgres")
    assert verdict.note == f"postgresql://127.0.0.1:{port}/postgres answers"


async def test_a_database_file_that_is_locked_is_not_cleared(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (a)")
        database.execute("BEGIN EXCLUSIVE")
        verdict = await ask(DatabaseTester(), f"sqlite://{path}")
        assert (verdict.cleared, verdict.note) == (False, f"{path}: database is locked")
    assert (await ask(DatabaseTester(), f"sqlite://{path}")).cleared


async def test_writing_is_tried_and_leaves_nothing(tmp_path: Path, stage: Stage) -> None:
    assert (await ask(stage.file_tester("writable"), str(tmp_path))).cleared
    assert list(tmp_path.iterdir()) == []


async def test_free_space_is_told_in_words(tmp_path: Path, stage: Stage) -> None:
    verdict = await ask(stage.file_tester("disk"), f"{tmp_path}>=900P")
    assert verdict.note.endswith("free, 921600 TB needed")


@pytest.mark.parametrize(
    ("least", "cleared"), [("0B", True), ("0", True), ("9000P", False), ("1048576B", True)]
)
async def test_what_was_taken_before_disks_had_bounds_or_another_spelling_still_gets_a_verdict(
    tmp_path: Path, stage: Stage, least: str, cleared: bool
) -> None:
    kept = f"{tmp_path}>={least}"
    verdict = await stage.file_tester("disk").test(kept, Surroundings(limit_s=5.0))
    assert (verdict.cleared, verdict.note.startswith(f"{tmp_path} has ")) == (cleared, True)
