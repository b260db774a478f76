"""One suite for all schemes, with real servers: what is fetched or delivered is whole and checked, or not there at all."""

import errno
import hashlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from tercel.core.files import Trouble
from tercel.data.contract import Deliver, Delivered, Fetch, Fetched, TransferFailed
from tercel.data.delivering import deliver, remove, stat
from tercel.data.fetching import fetch
from tercel.data.schemes import Schemes
from tercel.data.watches import Watch
from tests.data import servers
from tests.data.places import KINDS, Bucket, Directory, Pages, Place, places

pytestmark = [pytest.mark.C(11, 12), pytest.mark.must("a", "b")]

DATA = bytes(range(256)) * 4096
DIGEST = f"blake3:{blake3(DATA).hexdigest()}"
SIZE = len(DATA)
NAMES = ["a b", "ünïcödé", "50%", "a#b", "a?b", "it's", "a\nb", "x" * 200]


class Stage:
    def __init__(self, directory: Path, place: Place, schemes: Schemes) -> None:
        self.directory, self.place, self.schemes = directory, place, schemes

    def fetch(
        self, *names: str, path: str = "got", digest: str = "", size_bytes: int = -1, most: int = 2**40
    ) -> Fetched:
        urls = tuple(name if "/" in name else self.place.url(name) for name in names)
        what = Fetch(
            urls=urls, path=str(self.directory / path), digest=digest, size_bytes=size_bytes, most_bytes=most
        )
        return fetch(what, self.schemes, Watch())

    def deliver(self, name: str, data: bytes = DATA, path: str = "out") -> Delivered:
        (self.directory / path).write_bytes(data)
        url = self.place.url(name)
        return deliver(Deliver(path=str(self.directory / path), url=url, tag="1.2-ab"), self.schemes, Watch())

    def names(self) -> set[str]:
        """Of all that is here."""
        return {each.name for each in self.directory.iterdir()}


@pytest.fixture(scope="module")
def all_places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    with (
        pytest.MonkeyPatch.context() as environment,
        places(tmp_path_factory.mktemp("at"), environment) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def schemes(all_places: dict[str, Place]) -> Iterator[Schemes]:
    made = Schemes()
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, all_places: dict[str, Place], schemes: Schemes
) -> Stage:
    return Stage(tmp_path, all_places[request.param], schemes)


def trouble_of(caught: "pytest.ExceptionInfo[TransferFailed]") -> Trouble:
    assert caught.value.note and caught.value.url
    return caught.value.trouble


# -- fetching -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["", "blake3", "sha256", "md5"])
def test_a_file_is_brought_and_is_what_it_should_be(stage: Stage, algorithm: str) -> None:
    stage.place.put("in", DATA)
    other = hashlib.new(algorithm, DATA).hexdigest() if algorithm in ("sha256", "md5") else ""
    digest = {"": "", "blake3": DIGEST}.get(algorithm, f"{algorithm}:{other}")
    fetched = stage.fetch("in", digest=digest, size_bytes=SIZE)
    url = stage.place.url("in")
    seen = stage.schemes.of(url, ("", "")).stat(url, Watch())
    assert fetched == Fetched(
        url=stage.place.url("in"), size_bytes=SIZE, digest=DIGEST, validator=seen.validator
    )
    assert (stage.directory / "got").read_bytes() == DATA
    assert stage.names() == {"got"}


def test_an_empty_file_is_a_file(stage: Stage) -> None:
    stage.place.put("empty", b"")
    assert stage.fetch("empty", size_bytes=0).size_bytes == 0
    assert (stage.directory / "got").read_bytes() == b""


def test_what_is_not_there_is_missing(stage: Stage) -> None:
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("none")
    assert trouble_of(caught) is Trouble.MISSING and caught.value.bad[0][0] == stage.place.url("none")
    assert stage.names() == set()


@pytest.mark.parametrize("wrong", ["digest", "size"])
def test_what_is_not_as_it_should_be_is_discarded_and_another_is_taken(stage: Stage, wrong: str) -> None:
    stage.place.put("bad", b"?" + DATA[1:] if wrong == "digest" else DATA + b"?")
    stage.place.put("good", DATA)
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("bad", digest=DIGEST, size_bytes=SIZE)
    assert trouble_of(caught) is Trouble.CORRUPT
    assert stage.names() == set()
    fetched = stage.fetch("bad", "good", digest=DIGEST, size_bytes=SIZE)
    assert fetched.url == stage.place.url("good")
    assert [url for url, _ in fetched.bad] == [stage.place.url("bad")]


def test_what_passes_by_itself_is_told_rather_than_what_does_not(stage: Stage) -> None:
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("none", "http://127.0.0.1:1/x", "nowhere://x/y")
    assert trouble_of(caught) is Trouble.DOWN


def test_what_is_larger_than_may_be_is_not_fetched(stage: Stage) -> None:
    stage.place.put("large", DATA)
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("large", most=SIZE - 1)
    assert trouble_of(caught) is Trouble.REFUSED and stage.names() == set()


# -- delivering ---------------------------------------------------------------------------------------------


def test_a_file_is_delivered_under_its_name_and_no_other_also_twice(stage: Stage) -> None:
    before = stage.place.all()
    for data in (DATA, DATA, b"another"):
        delivered = stage.deliver("made/deep/out", data)
        assert delivered.url == stage.place.url("made/deep/out")
        assert delivered.digest == f"blake3:{blake3(data).hexdigest()}"
        assert stage.place.all() == before | {"made/deep/out": data}


def test_into_a_directory_it_goes_under_its_own_name(stage: Stage) -> None:
    assert stage.deliver("into/", b"x", path="my file").url == stage.place.url("into/my file")
    assert stage.place.all()["into/my file"] == b"x"


def test_what_lost_tries_left_half_there_goes_first(stage: Stage) -> None:
    url = stage.place.url("out")
    scheme = stage.schemes.of(url, ("", ""))
    if not scheme.puts_whole:  # or nothing is ever half there
        stage.place.put(".out.37.4-a.part", b"half of")
        stage.place.put(".out.37.5-a.part", b"another's")
    (stage.directory / "mine").write_bytes(DATA)
    what = Deliver(path=str(stage.directory / "mine"), url=url, tag="37.4-c", stale=("37.4-a", "37.4-b"))
    deliver(what, stage.schemes, Watch())
    left = {name for name in stage.place.all() if name.startswith(".")}
    assert left == (set() if scheme.puts_whole else {".out.37.5-a.part"})


@pytest.mark.parametrize("name", NAMES)
def test_names_are_kept_as_they_are(stage: Stage, name: str) -> None:
    if isinstance(stage.place, Bucket) and "\n" in name:
        pytest.skip("moto's routes know no newline")
    stage.deliver("odd/", b"x", path=name)
    assert stage.place.all()[f"odd/{name}"] == b"x"
    assert stage.fetch(stage.place.url(f"odd/{name}")).size_bytes == 1


def test_what_is_removed_is_gone_and_may_be_gone_already(stage: Stage) -> None:
    url = stage.deliver("gone", DATA).url
    assert stat(url, stage.schemes, Watch())[0] == SIZE
    for _ in range(2):
        remove(url, stage.schemes, Watch())
        assert "gone" not in stage.place.all()
    with pytest.raises(TransferFailed) as caught:
        stat(url, stage.schemes, Watch())
    assert trouble_of(caught) is Trouble.MISSING


def test_the_validator_is_another_when_the_bytes_are(stage: Stage) -> None:
    stage.place.put("v", DATA)
    first = stat(stage.place.url("v"), stage.schemes, Watch())
    stage.place.put("v", DATA[1:])
    second = stat(stage.place.url("v"), stage.schemes, Watch())
    assert first[1] and second[1] and first != second


def test_what_cannot_be_read_here_is_this_nodes_own_fault(stage: Stage) -> None:
    with pytest.raises(TransferFailed) as caught:
        deliver(
            Deliver(path=str(stage.directory / "none"), url=stage.place.url("x"), tag="t"),
            stage.schemes,
            Watch(),
        )
    assert caught.value.errno == "ENOENT"


@pytest.mark.parametrize("what", ["directory", "fifo"])
def test_only_files_are_delivered(stage: Stage, what: str) -> None:
    path = stage.directory / what
    path.mkdir() if what == "directory" else os.mkfifo(path)
    with pytest.raises(TransferFailed) as caught:
        deliver(Deliver(path=str(path), url=stage.place.url("x"), tag="t"), stage.schemes, Watch())
    assert trouble_of(caught) is Trouble.REFUSED


def test_a_full_disk_here_is_this_nodes_own_fault_and_leaves_no_file(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.place.put("in", DATA)
    write = os.write

    def full(fd: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{fd}").endswith("got.part"):
            raise OSError(errno.ENOSPC, "full")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("in", "in")
    assert (caught.value.trouble, caught.value.errno) == (Trouble.FULL, "ENOSPC")
    assert "got" not in stage.names()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tercel-test", path], check=False)
    if mounted.returncode:
        pytest.skip("nothing can be mounted here")
    yield path
    subprocess.run(["umount", "--lazy", path], check=False)


@pytest.mark.parametrize("kind", ["path", "file", "sftp", "other"])
def test_a_storage_without_room_is_full_and_gets_its_room_back(
    kind: str, all_places: dict[str, Place], schemes: Schemes, tmp_path: Path, small_disk: Path
) -> None:
    (tmp_path / "out").write_bytes(DATA)
    place = all_places[kind]
    assert isinstance(place, Directory)
    url = place.url("x").replace(str(place.directory), str(small_disk))
    with pytest.raises(TransferFailed) as caught:
        deliver(Deliver(path=str(tmp_path / "out"), url=url, tag="t"), schemes, Watch())
    assert (trouble_of(caught), caught.value.errno) == (Trouble.FULL, "")
    place.put("in", DATA)
    with pytest.raises(TransferFailed) as caught:
        fetch(Fetch(urls=(place.url("in"),), path=str(small_disk / "got")), schemes, Watch())
    assert (trouble_of(caught), caught.value.errno) == (Trouble.FULL, "ENOSPC")
    assert os.listdir(small_disk) == []


# -- what is refused, and what is never told ----------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hunter2@store.lab/x",
        "sftp://ada:hunter2@store.lab/x",
        "s3://key:hunter2@lab/x",
        "https://ada@store.lab/x",
        "file:///data/../etc/passwd",
        "/data/../etc/passwd",
        "file:///data/%2e%2e/x",
        "sftp://store.lab/../x",
        "file://elsewhere/x",
        "sftp://-oProxyCommand=x/y",
        "sftp://a;b/y",
        "nowhere://x/y",
        "x",
        "",
        "/dev",
        "/dev/null",
        "tercel:blake3:12",
        "https:///x",
    ],
)
def test_what_can_never_be_is_refused_without_telling_secrets(url: str, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"x")
    what = Deliver(path=str(tmp_path / "out"), url=url, tag="t")
    for transfer in (
        lambda: fetch(Fetch(urls=(url,), path=str(tmp_path / "got")), Schemes(), Watch()),
        lambda: stat(url, Schemes(), Watch()),
        lambda: (
            deliver(what, Schemes(), Watch()) if not url.startswith("/dev") else stat(url, Schemes(), Watch())
        ),
    ):
        with pytest.raises(TransferFailed) as caught:
            transfer()
        assert caught.value.trouble is Trouble.REFUSED and caught.value.note
        assert "hunter2" not in caught.value.note + caught.value.url


def test_a_digest_that_is_none_is_refused(stage: Stage) -> None:
    with pytest.raises(TransferFailed) as caught:
        stage.fetch("in", digest="crc32:12")
    assert trouble_of(caught) is Trouble.REFUSED


def test_a_library_that_is_not_there_is_told_with_how_to_get_it() -> None:
    with pytest.raises(TransferFailed) as caught:
        stat("gs://lab/x", Schemes(), Watch())
    assert caught.value.trouble is Trouble.REFUSED and "pip install gcsfs" in caught.value.note


THIRD = """
from tercel.data.local import LocalScheme
class Tape(LocalScheme):
    def stat(self, url, watch):
        return super().stat(url.replace("tape://", "file://"), watch)
"""


def test_a_third_party_adds_a_scheme_by_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "tape-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tape\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tercel.schemes]\ntape = tape:Tape\nworn = tape:None\n")
    (tmp_path / "tape.py").write_text(THIRD)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert stat(f"tape://{tmp_path}/tape.py", Schemes(), Watch())[0] == len(THIRD)
    with pytest.raises(TransferFailed) as caught:
        stat("worn:///x", Schemes(), Watch())
    assert caught.value.trouble is Trouble.REFUSED and "cannot be imported" in caught.value.note


def test_what_the_manager_keeps_is_named_by_its_digest(all_places: dict[str, Place], tmp_path: Path) -> None:
    pages = all_places["http"]
    assert isinstance(pages, Pages)
    (tmp_path / "out").write_bytes(DATA)
    what = Deliver(path=str(tmp_path / "out"), url="tercel:", tag="t")
    manager = (pages.server.url, servers.TOKEN)
    pages.server.asked.clear()
    for _ in range(2):
        assert deliver(what, Schemes(), Watch(), manager).url == f"tercel:{DIGEST}"
    assert [asked[0] for asked in pages.server.asked] == ["HEAD", "PUT", "HEAD"]
    found = fetch(
        Fetch(urls=(f"tercel:{DIGEST}",), path=str(tmp_path / "got"), digest=DIGEST),
        Schemes(),
        Watch(),
        manager,
    )
    assert found.size_bytes == SIZE
    with pytest.raises(TransferFailed) as caught:
        deliver(what, Schemes(), Watch(), (pages.server.url, "a stranger's"))
    assert caught.value.trouble is Trouble.DENIED
