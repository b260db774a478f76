"""Servers that lie, break off, never end or ask for patience: detected, bounded, told. And going on from what was cut."""

import errno
import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest
from blake3 import blake3
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError  # type: ignore[import-untyped]

from tercel.core.files import Trouble
from tercel.data import http_client
from tercel.data.contract import Deliver, Fetch, Fetched, TransferFailed
from tercel.data.delivering import deliver
from tercel.data.faults import failed, retry_after_s
from tercel.data.fetching import Pace, fetch
from tercel.data.http import KeptScheme
from tercel.data.schemes import Schemes
from tercel.data.watches import Cancelled, Watch
from tests.data import servers
from tests.testers.servers import certificate, closed_port

pytestmark = [pytest.mark.C(11, 12), pytest.mark.must("b")]

DATA = bytes(range(256)) * 2048
DIGEST = f"blake3:{blake3(DATA).hexdigest()}"
SIZE = len(DATA)
AT_ONCE = Pace(least_bytes=1000, slow_bytes_s=1e15, look_s=0.0, piece_bytes=50_000)
"""In pieces from the first chunk on."""


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[servers.WebServer]:
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "x").write_bytes(DATA)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with servers.web(tmp_path / "web") as server:
        yield server


def bring(
    web: servers.WebServer,
    at: Path,
    path: str = "/x",
    pace: Pace | None = None,
    watch: Watch | None = None,
    **more: object,
) -> Fetched:
    what = Fetch(urls=(web.url + path,), path=str(at / "got"), **more)  # type: ignore[arg-type]
    return fetch(what, Schemes(), watch or Watch(), pace=pace or Pace())


def refused(web: servers.WebServer, at: Path, path: str = "/x", **more: object) -> TransferFailed:
    with pytest.raises(TransferFailed) as caught:
        bring(web, at, path, **more)  # type: ignore[arg-type]
    assert not (at / "got").exists()
    return caught.value


@pytest.mark.parametrize("fault", ["flip 100", "says-less"])
def test_a_flipped_bit_is_noticed_and_it_is_fetched_once_more(
    web: servers.WebServer, tmp_path: Path, fault: str
) -> None:
    web.faults["/x"] = [fault]
    assert bring(web, tmp_path, digest=DIGEST, size_bytes=SIZE).digest == DIGEST
    assert len(web.asked) == 2


def test_bits_that_are_always_flipped_are_told_as_corrupt_and_leave_nothing(
    web: servers.WebServer, tmp_path: Path
) -> None:
    web.faults["/x"] = ["flip 100"] * 10
    assert refused(web, tmp_path, digest=DIGEST).trouble is Trouble.CORRUPT
    assert {each.name for each in tmp_path.iterdir()} == {"web"}


def test_what_was_cut_is_gone_on_from(web: servers.WebServer, tmp_path: Path) -> None:
    web.faults["/x"] = ["cut 300000", "cut 100000"]
    assert refused(web, tmp_path).trouble is Trouble.DOWN
    assert bring(web, tmp_path).digest == DIGEST
    ranges = [headers.get("Range") for _, _, headers in web.asked]
    assert ranges == [None, "bytes=300000-", "bytes=400000-"]
    assert {each.name for each in tmp_path.iterdir()} == {"web", "got"}


def test_what_was_cut_is_begun_anew_if_the_source_is_another_now(
    web: servers.WebServer, tmp_path: Path
) -> None:
    web.faults["/x"] = ["cut 300000", "503"]
    refused(web, tmp_path)
    other = DATA[::-1]
    web.file("x").write_bytes(other)
    assert bring(web, tmp_path).digest == f"blake3:{blake3(other).hexdigest()}"


@pytest.mark.parametrize("harm", ["a byte more", "another boot", "nonsense"])
def test_a_part_that_is_not_surely_its_own_is_begun_anew(
    web: servers.WebServer, tmp_path: Path, harm: str
) -> None:
    web.faults["/x"] = ["cut 300000", "503"]
    refused(web, tmp_path)
    part, origin = tmp_path / "got.part", tmp_path / "got.part.from"
    if harm == "a byte more":  # what was written after it was noted how far it is whole does no harm
        part.write_bytes(part.read_bytes() + b"?")
    elif harm == "another boot":
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        origin.write_text(origin.read_text().replace(boot, "another"))
    else:
        origin.write_bytes(b"{}")
    web.asked.clear()
    assert bring(web, tmp_path).digest == DIGEST
    assert web.asked[0][2].get("Range") == ("bytes=300000-" if harm == "a byte more" else None)


def test_a_server_without_ranges_is_asked_for_all_of_it_again(web: servers.WebServer, tmp_path: Path) -> None:
    web.faults["/x"] = ["cut 300000", "no-ranges"]
    assert bring(web, tmp_path).digest == DIGEST


@pytest.mark.parametrize("pace", [None, AT_ONCE])
def test_a_server_that_says_more_than_it_has_is_told(
    web: servers.WebServer, tmp_path: Path, pace: Pace | None
) -> None:
    web.faults["/x"] = ["says-more"] * 10
    assert refused(web, tmp_path, pace=pace).trouble in (Trouble.DOWN, Trouble.CORRUPT)


@pytest.mark.parametrize(
    ("most", "trouble"), [({"most_bytes": 10**6}, "refused"), ({"size_bytes": SIZE}, "corrupt")]
)
def test_what_never_ends_is_ended(
    web: servers.WebServer, tmp_path: Path, most: dict[str, int], trouble: str
) -> None:
    web.faults["/x"] = ["endless"] * 10
    assert refused(web, tmp_path, **most).trouble == trouble
    assert {each.name for each in tmp_path.iterdir()} == {"web"}


def test_redirects_are_followed_to_their_end(web: servers.WebServer, tmp_path: Path) -> None:
    web.faults |= {f"/r{n}": [f"302 Location=/r{n + 1}"] for n in range(9)}
    web.faults["/r9"] = ["307 Location=x?a=b"]
    assert bring(web, tmp_path, "/r0").digest == DIGEST


@pytest.mark.parametrize(
    ("faults", "said"),
    [
        ({"/a": ["302 Location=/b"], "/b": ["302 Location=/a"]}, "circle"),
        ({f"/{n}": [f"302 Location=/{n + 1}"] for n in range(20)} | {"/a": ["302 Location=/0"]}, "10 times"),
        ({"/a": ["302 Location=file:///etc/passwd"]}, "no page"),
        ({"/a": ["302"]}, "no page"),
        ({"/a": ["302 Location=http://ada:hunter2@127.0.0.1/"]}, "password"),
    ],
)
def test_redirects_that_lead_nowhere_are_refused(
    web: servers.WebServer, tmp_path: Path, faults: dict[str, list[str]], said: str
) -> None:
    web.faults |= faults
    failure = refused(web, tmp_path, "/a")
    assert failure.trouble is Trouble.REFUSED and said in failure.note and "hunter2" not in failure.note


def test_credentials_go_to_their_own_host_only(
    web: servers.WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login ada password hunter2\n")
    monkeypatch.setenv("TERCEL_BEARER_LOCALHOST", "of-another")
    web.faults["/r"] = [f"302 Location=http://localhost:{web.server_port}/y"]
    web.faults["/y"] = [f"302 Location=http://[::1]:{web.server_port}/x"]
    with suppress(TransferFailed):  # nobody listens at ::1, which is the point reached last
        bring(web, tmp_path, "/r")
    said = [headers.get("Authorization", "") for _, _, headers in web.asked]
    assert said == ["Basic YWRhOmh1bnRlcjI=", "Bearer of-another"]


@pytest.mark.parametrize("place", ["manager.lab", "manager.lab:804", "manager", "manager.lab:8042.evil"])
def test_the_managers_token_goes_to_no_host_that_is_only_called_like_it(place: str) -> None:
    kept = KeptScheme("http://manager.lab:8042", "its token")
    assert kept._credentials("http", "manager.lab:8042") == "Bearer its token"
    assert kept._credentials("http", place) == kept._credentials("https", "manager.lab:8042") == ""


@pytest.mark.parametrize("fault", ["loris", "hold 1000"])
def test_a_server_that_holds_one_is_left(web: servers.WebServer, tmp_path: Path, fault: str) -> None:
    """With the watch of a mover, whose time passes at once here."""
    web.faults["/x"] = [fault] * 5
    watch = Watch(stall_s=60.0)
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            if web.asked:
                watch.look(time.monotonic())  # takes note of what came so far
                watch.look(time.monotonic() + 61)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        failure = refused(web, tmp_path, watch=watch)
    finally:
        done.set()
        looking.join()
    assert failure.trouble is Trouble.DOWN and "no progress for 60 s" in failure.note


def test_cancelling_wakes_who_waits_for_bytes(web: servers.WebServer, tmp_path: Path) -> None:
    web.faults["/x"] = ["hold 1000"]
    watch = Watch()

    def cancel() -> None:
        while not web.asked:
            time.sleep(0.01)
        watch.cancel()

    threading.Thread(target=cancel).start()
    with pytest.raises(Cancelled):
        bring(web, tmp_path, watch=watch)


# -- in pieces ----------------------------------------------------------------------------------------------


def test_a_large_file_that_comes_slowly_is_fetched_in_pieces(web: servers.WebServer, tmp_path: Path) -> None:
    assert bring(web, tmp_path, pace=AT_ONCE, digest=DIGEST).digest == DIGEST
    assert len(web.asked) > 4 and (tmp_path / "got").read_bytes() == DATA


def test_a_piece_that_is_cut_leaves_what_is_whole_before_it(web: servers.WebServer, tmp_path: Path) -> None:
    web.faults["/x"] = ["", "", "", "cut 10", "cut 10", "503", "503", "503", "503", "503"]
    failure = refused(web, tmp_path, pace=AT_ONCE)
    assert failure.trouble in (Trouble.DOWN, Trouble.BUSY)
    web.faults.clear()
    web.asked.clear()
    assert bring(web, tmp_path, digest=DIGEST).digest == DIGEST
    assert "Range" in web.asked[0][2]


def test_a_file_that_changes_between_its_pieces_is_fetched_anew(
    web: servers.WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = DATA[::-1]
    web.file("y").write_bytes(other)
    serve = servers.Web._serve

    def changing(self: servers.Web, data: bytes, what: str, at: int) -> None:
        serve(self, data, what, at)
        if "Range" in self.headers and web.file("y").exists():
            with suppress(FileNotFoundError):  # another was quicker
                web.file("y").replace(web.file("x"))

    monkeypatch.setattr(servers.Web, "_serve", changing)
    assert bring(web, tmp_path, pace=AT_ONCE).digest == f"blake3:{blake3(other).hexdigest()}"


# -- delivering ---------------------------------------------------------------------------------------------


def test_what_arrives_otherwise_than_it_was_sent_is_sent_again_then_told(
    web: servers.WebServer, tmp_path: Path
) -> None:
    (tmp_path / "out").write_bytes(DATA)
    what = Deliver(path=str(tmp_path / "out"), url=f"{web.url}/y", tag="t")
    web.faults["/y"] = ["flip"]
    assert deliver(what, Schemes(), Watch()).digest == DIGEST
    web.faults["/y"] = ["flip", "", "flip"]
    with pytest.raises(TransferFailed) as caught:
        deliver(what, Schemes(), Watch())
    assert caught.value.trouble is Trouble.CORRUPT and not web.file("y").exists()


def test_a_storage_that_has_no_room_is_full(web: servers.WebServer, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(DATA * 20)
    web.faults["/y"] = ["507"]
    with pytest.raises(TransferFailed) as caught:
        deliver(
            Deliver(path=str(tmp_path / "out"), url=f"{web.url}/y?token=hunter2", tag="t"), Schemes(), Watch()
        )
    assert (caught.value.trouble, caught.value.errno) == (Trouble.FULL, "")
    assert "hunter2" not in caught.value.note + caught.value.url


# -- what is what -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        (400, "refused"),
        (401, "denied"),
        (403, "denied"),
        (404, "missing"),
        (408, "down"),
        (410, "missing"),
        (418, "refused"),
        (429, "busy"),
        (500, "down"),
        (502, "down"),
        (503, "busy"),
        (507, "full"),
    ],
)
def test_each_status_is_the_trouble_that_it_is(
    web: servers.WebServer, tmp_path: Path, status: int, trouble: str
) -> None:
    web.faults["/x"] = [f"{status} Retry-After=77"] * 3
    failure = refused(web, tmp_path, "/x?signature=hunter2")
    assert failure.trouble == trouble
    assert failure.not_before_s == (77 if trouble == "busy" else 0)
    assert "hunter2" not in failure.note + failure.url and str(status) in failure.note


def test_when_to_come_back_is_said_in_seconds_or_by_a_date() -> None:
    in_an_hour = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert 3500 < retry_after_s(in_an_hour) <= 3600
    assert [retry_after_s(text) for text in ("120", "never", "-5", "9" * 30)] == [120.0, 0.0, 0.0, 86_400.0]


def wrapped(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


def s3_said(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "down"),
        (OSError(errno.EHOSTUNREACH, "x"), "down"),
        (OSError(errno.ESTALE, "x"), "down"),
        (OSError(errno.EDQUOT, "x"), "full"),
        (OSError(errno.ENOSPC, "x"), "full"),
        (PermissionError(errno.EACCES, "x"), "denied"),
        (IsADirectoryError(errno.EISDIR, "x"), "refused"),
        (TimeoutError(), "down"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "unknown-host"),
        (ssl.SSLCertVerificationError(1, "expired"), "down"),
        (http.client.BadStatusLine("x"), "down"),
        (http.client.InvalidURL("x"), "refused"),
        (wrapped(PermissionError("Forbidden"), s3_said("AccessDenied", 403)), "denied"),
        (wrapped(OSError(errno.EIO, "x"), s3_said("ExpiredToken", 400)), "denied"),
        (wrapped(OSError(errno.EBUSY, "x"), s3_said("SlowDown", 503)), "busy"),
        (wrapped(OSError(errno.EIO, "x"), s3_said("InternalError", 500)), "down"),
        (wrapped(FileNotFoundError("x"), s3_said("NoSuchBucket", 404)), "missing"),
        (NoCredentialsError(), "denied"),
        (EndpointConnectionError(endpoint_url="http://x"), "down"),
        (ImportError("x"), "refused"),
        (RuntimeError("who knows"), "down"),
    ],
)
def test_each_error_is_the_trouble_that_it_is(error: Exception, trouble: str) -> None:
    failure = failed(error, "s3://lab/x")
    assert (failure.trouble, failure.errno, failure.url) == (trouble, "", "s3://lab/x")


def test_https_is_spoken_with_those_whose_certificate_is_valid_only(
    web: servers.WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, context = certificate(tmp_path)
    web.socket = context.wrap_socket(web.socket, server_side=True)
    what = Fetch(urls=(f"https://localhost:{web.server_port}/x",), path=str(tmp_path / "got"))
    http_client.tls.cache_clear()
    try:
        with pytest.raises(TransferFailed) as caught:
            fetch(what, Schemes(), Watch())
        assert caught.value.trouble is Trouble.DOWN and "certificate is not valid" in caught.value.note
        monkeypatch.setenv("SSL_CERT_FILE", str(path))
        http_client.tls.cache_clear()
        assert fetch(what, Schemes(), Watch()).digest == DIGEST
    finally:
        http_client.tls.cache_clear()


def test_who_is_not_there_is_down_or_unknown(tmp_path: Path) -> None:
    with closed_port() as port:
        for url, trouble in (
            (f"http://127.0.0.1:{port}/x", "down"),
            (f"sftp://127.0.0.1:{port}/x", "down"),
            ("http://nowhere.invalid/x", "unknown-host"),
            ("sftp://nowhere.invalid/x", "unknown-host"),
        ):
            with pytest.raises(TransferFailed) as caught:
                fetch(Fetch(urls=(url,), path=str(tmp_path / "got")), Schemes(), Watch())
            assert caught.value.trouble == trouble
    assert os.listdir(tmp_path) == []


# -- what the manager keeps -----------------------------------------------------------------------------------


def test_a_manager_that_is_full_is_told_by_what_it_was_to_keep_not_by_its_page(
    tmp_path: Path, web: servers.WebServer
) -> None:
    """Nobody but a worker may put something there, so no tester of that page would ever find it well."""
    (tmp_path / "out").write_bytes(DATA)
    kept, page = f"tercel:{DIGEST}", f"/v1/contents/{DIGEST}"
    web.faults[page] = ["404", "507"]
    with pytest.raises(TransferFailed) as caught:
        deliver(
            Deliver(path=str(tmp_path / "out"), url="tercel:", tag="1"),
            Schemes(),
            Watch(),
            (web.url, servers.TOKEN),
        )
    assert (caught.value.trouble, caught.value.url) == (Trouble.FULL, kept)
    assert caught.value.note.startswith(f"{kept} answers 507")
    web.faults[page] = ["503"]
    with pytest.raises(TransferFailed) as caught:
        fetch(Fetch(urls=(kept,), path=str(tmp_path / "got")), Schemes(), Watch(), (web.url, servers.TOKEN))
    assert (caught.value.trouble, caught.value.url) == (Trouble.BUSY, kept)


@pytest.mark.parametrize("other", ["lab", "lab.example", "lab.example:771", "lab.example:77170", "evil"])
def test_the_managers_token_goes_to_no_other_even_if_its_name_begins_like_it(other: str) -> None:
    scheme = KeptScheme("http://lab.example:7717", "token")
    assert scheme._credentials("http", "lab.example:7717") == "Bearer token"
    assert scheme._credentials("http", other) == ""
    assert scheme._credentials("https", "lab.example:7717") == ""


def test_a_token_for_one_host_is_not_given_to_another_whose_name_is_spelt_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("TERCEL_BEARER_DATA_LAB_ORG", "token")
    monkeypatch.setenv("TERCEL_BEARER_DATA__LAB_ORG", "other")
    assert http_client.own_credentials("https", "data.lab.org") == "Bearer token"
    assert http_client.own_credentials("https", "data-lab.org:443") == "Bearer other"
    assert http_client.own_credentials("https", "data.lab-org") == ""
