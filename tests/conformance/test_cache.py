"""A node's cache: what is here, what may go, and who is kept from what."""

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tercel.core.errors import UsageError
from tercel.data import cache_files, cache_index
from tercel.data.cache import Cache, CacheBusy, CacheFull
from tests.conformance.caches import agrees, bring, content, digest_of, files_in, lives_on

ROOM = 10_000


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    cache = opened(tmp_path, "one")
    yield cache
    cache.close()


def opened(tmp_path: Path, holder: str, size_bytes: int = ROOM) -> Cache:
    cache = Cache(tmp_path / "cache", size_bytes, holder)
    cache.open()
    return cache


# -- files ------------------------------------------------------------------------------------------------


def test_what_was_added_is_found_whole_and_read_only(cache: Cache) -> None:
    assert cache.get(digest_of(b"data"), "a") is None
    path = bring(cache, b"data", "a")
    assert path.read_bytes() == b"data"
    assert path.stat().st_mode & 0o777 == 0o555
    assert cache.get(digest_of(b"data"), "b") != path  # a link of each pin's own
    assert cache.contents() == [(digest_of(b"data"), 4)]


def test_many_are_asked_for_at_once(cache: Cache) -> None:
    bring(cache, b"1", "a")
    bring(cache, b"3", "a")
    found = cache.get_all([digest_of(data) for data in (b"1", b"2", b"3")], "b")
    assert [path and path.read_bytes() for path in found] == [b"1", None, b"3"]


def test_it_survives_a_restart(cache: Cache, tmp_path: Path) -> None:
    bring(cache, b"data", "a")
    cache.remember("https://x/y", "etag", digest_of(b"data"))
    cache.close()
    again = opened(tmp_path, "one")
    assert again.contents() == [(digest_of(b"data"), 4)]
    assert again.recall("https://x/y") == ("etag", digest_of(b"data"))
    assert again.get(digest_of(b"data"), "a") is not None
    again.close()


def test_the_longest_unused_goes_first_by_whoever_it_was_used(cache: Cache, tmp_path: Path) -> None:
    other = opened(tmp_path, "two")
    for number in range(3):
        bring(cache, content(number, 3000), "a")
    cache.unpin("a")
    assert other.get(digest_of(content(0, 3000)), "b")
    other.unpin("b")
    bring(cache, content(3, 3000), "a")
    assert {digest for digest, _ in cache.contents()} == {
        digest_of(content(number, 3000)) for number in (0, 2, 3)
    }
    other.close()


def test_what_is_in_use_stays_and_there_is_no_room_then(cache: Cache, tmp_path: Path) -> None:
    other = opened(tmp_path, "two")
    kept = bring(other, content(1, 6000), "task")
    bring(cache, content(2, 3000), "a")
    cache.unpin("a")
    with pytest.raises(CacheFull, match=r"1 files in use have 5\.9 KB") as full:
        bring(cache, content(3, 5000), "a")
    assert full.value.pinned == [(digest_of(content(1, 6000)), 6000)]
    assert not full.value.too_large
    assert len(cache.contents()) == 2  # nothing was given up for what does not fit
    assert kept.read_bytes() == content(1, 6000)
    other.unpin("task")
    bring(cache, content(3, 5000), "a")
    other.close()


def test_more_than_it_may_ever_have_is_told_apart(cache: Cache) -> None:
    with pytest.raises(CacheFull, match="more than it may have at all") as full:
        bring(cache, content(1, ROOM + 1), "a")
    assert full.value.too_large


def test_a_sandbox_that_is_kept_does_not_keep_the_cache_from_making_room(
    cache: Cache, tmp_path: Path
) -> None:
    os.link(bring(cache, content(1, 6000), "a"), tmp_path / "kept")
    cache.unpin("a")
    bring(cache, content(2, 6000), "a")
    assert cache.contents() == [(digest_of(content(2, 6000)), 6000)]
    assert (tmp_path / "kept").read_bytes() == content(1, 6000)


def test_a_smaller_size_is_kept_from_the_next_start_on(cache: Cache, tmp_path: Path) -> None:
    for number in range(3):
        bring(cache, content(number, 3000), "a")
    cache.close()
    smaller = opened(tmp_path, "one", 4000)
    assert smaller.contents() == [(digest_of(content(2, 3000)), 3000)]
    smaller.close()


def test_it_can_be_opened_while_others_use_more_than_it_may_have(cache: Cache, tmp_path: Path) -> None:
    kept = bring(cache, content(1, 3000), "a")
    smaller = opened(tmp_path, "two", 2000)
    assert kept.read_bytes() == content(1, 3000)
    with pytest.raises(CacheFull):
        bring(smaller, b"1", "a")
    smaller.close()


def test_each_file_counts_once_however_often_the_cache_is_opened(cache: Cache, tmp_path: Path) -> None:
    for number in range(5):
        bring(cache, content(number, 2000), "a")
    cache.unpin("a")
    other = opened(tmp_path, "two")
    bring(other, content(5, 5000), "a")
    assert sum(size for _, size in other.contents()) == 9000
    assert files_in(other.dir).keys() == {
        digest_of(content(3, 2000)),
        digest_of(content(4, 2000)),
        digest_of(content(5, 5000)),
    }
    other.close()


def appended(path: Path) -> None:
    path.chmod(0o644)
    with path.open("ab") as file:
        file.write(b"!")


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"D")


def made_writable(path: Path) -> None:
    path.chmod(0o644)


@pytest.mark.parametrize("change", [appended, overwritten, made_writable])
def test_what_a_task_has_changed_is_not_handed_out(cache: Cache, tmp_path: Path, change: object) -> None:
    os.link(bring(cache, b"data", "a"), tmp_path / "input")
    (tmp_path / "input").chmod(0o600)
    change(tmp_path / "input")  # type: ignore[operator]
    assert cache.get(digest_of(b"data"), "b") is None
    assert cache.contents() == []
    assert bring(cache, b"data", "a").read_bytes() == b"data"  # under a pin that has the changed one
    agrees(cache)


def test_what_was_changed_while_nobody_looked_is_gone_at_the_next_start(cache: Cache, tmp_path: Path) -> None:
    os.link(bring(cache, b"data", "a"), tmp_path / "input")
    cache.close()
    appended(tmp_path / "input")
    again = opened(tmp_path, "one")
    assert again.contents() == []
    again.close()


def test_verifying_finds_what_no_time_of_change_tells(cache: Cache) -> None:
    path = bring(cache, b"data", "a")
    digest = digest_of(b"data")
    assert cache.verify(digest)
    before = path.stat()
    path.chmod(0o644)
    path.write_bytes(b"dat4")
    path.chmod(0o555)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not cache.verify(digest)
    cache.discard(digest)
    assert cache.get(digest, "b") is None
    assert not cache.verify(digest)


def test_digests_of_every_kind_are_verified(cache: Cache) -> None:
    for digest in (f"sha256:{hashlib.sha256(b'x').hexdigest()}", f"md5:{hashlib.md5(b'x').hexdigest()}"):
        claim = cache.claim(digest)
        assert claim is not None
        claim.path.write_bytes(b"x")
        cache.add(claim, digest, 1, "a")
        assert cache.verify(digest)


# -- fetching ---------------------------------------------------------------------------------------------


def test_one_fetches_and_the_others_see_that(cache: Cache, tmp_path: Path) -> None:
    other = opened(tmp_path, "two")
    claim = cache.claim(digest_of(b"data"))
    assert claim is not None
    assert other.claim(digest_of(b"data")) is None
    assert cache.claim(digest_of(b"data")) is None  # nor twice in one process
    claim.path.write_bytes(b"data")
    cache.add(claim, digest_of(b"data"), 4, "a")
    assert other.get(digest_of(b"data"), "a") is not None
    assert other.take_news() == ([(digest_of(b"data"), 4)], [])
    assert other.take_news() == ([], [])
    other.close()


def test_who_claims_next_goes_on_with_what_was_left(cache: Cache, tmp_path: Path) -> None:
    claim = cache.claim("url:https://x/y?signature=secret")
    assert claim is not None
    claim.path.with_name(claim.path.name + ".part").write_bytes(b"da")
    claim.release()
    cache.close()
    again = opened(tmp_path, "one")
    claim = again.claim("url:https://x/y?signature=secret")
    assert claim is not None
    assert claim.path.with_name(claim.path.name + ".part").read_bytes() == b"da"
    claim.release()
    again.close()
    assert not [path for path in tmp_path.rglob("*") if "secret" in path.name]


def test_two_sources_of_one_file_make_one_copy(cache: Cache) -> None:
    first = bring(cache, b"data", "a")
    second = bring(cache, b"data", "b", key="url:http://elsewhere")
    assert first.samefile(second)
    assert not list((cache.dir / "claims").iterdir())
    agrees(cache)


def test_what_is_half_is_not_taken_in(cache: Cache) -> None:
    claim = cache.claim(digest_of(b"data"))
    assert claim is not None
    claim.path.write_bytes(b"da")
    with pytest.raises(OSError, match="2 bytes instead of 4"):
        cache.add(claim, digest_of(b"data"), 4, "a")
    assert cache.contents() == []
    claim.release()


def test_room_is_made_before_a_fetch_and_counts_for_all(cache: Cache, tmp_path: Path) -> None:
    other = opened(tmp_path, "two")
    bring(cache, content(1, 6000), "a")
    cache.unpin("a")
    claim = cache.claim("url:large")
    assert claim is not None
    cache.reserve(claim, 8000)
    assert cache.contents() == []
    with pytest.raises(CacheFull, match=r"others being fetched 7\.8 KB"):
        bring(other, content(2, 3000), "b")
    claim.release()
    bring(other, content(2, 3000), "b")
    other.close()


def test_what_nobody_goes_on_fetching_makes_room(cache: Cache) -> None:
    bring(cache, content(1, 1000), "a")
    claim = cache.claim("url:cut")
    assert claim is not None
    claim.path.write_bytes(bytes(8192))
    claim.release()
    bring(cache, content(2, 3000), "a")
    assert len(cache.contents()) == 2
    assert not list((cache.dir / "claims").iterdir())


# -- what is known of URLs --------------------------------------------------------------------------------


def test_what_a_url_has_is_known_as_long_as_that_is_here(cache: Cache, tmp_path: Path) -> None:
    other = opened(tmp_path, "two")
    digest = digest_of(b"data")
    bring(cache, b"data", "a")
    cache.remember("https://x/y?signature=secret", '"v1"\n', digest)
    assert other.recall("https://x/y?signature=secret") == ('"v1"\n', digest)
    assert other.recall("https://x/z") is None
    assert b"secret" not in (cache.dir / "index").read_bytes()
    cache.discard(digest)
    assert other.recall("https://x/y?signature=secret") is None
    other.close()


# -- the index --------------------------------------------------------------------------------------------


def test_the_index_is_made_from_the_files_if_it_is_lost_or_damaged(cache: Cache, tmp_path: Path) -> None:
    bring(cache, b"data", "a")
    cache.close()
    for damage in (b"", b"\0" * 100, b'["+","blake3:../..",1,1]\n["+"\n{}\n["-",3]\nhalf'):
        (cache.dir / "index").write_bytes(damage)
        again = opened(tmp_path, "one")
        assert again.contents() == [(digest_of(b"data"), 4)]
        bring(again, b"more", "a")
        agrees(again)
        again.discard(digest_of(b"more"))
        again.close()


def test_the_index_does_not_grow_for_ever(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_index, "COMPACT_LINES", 50)
    other = opened(tmp_path, "two")
    bring(cache, b"stays", "kept")
    cache.remember("u", "v", digest_of(b"stays"))
    for number in range(100):
        bring(cache, content(number, 3000), "a")
        cache.unpin("a")
    assert len((cache.dir / "index").read_bytes().splitlines()) < 80
    came, went = other.take_news()
    known = dict(came)
    assert sorted(known.items()) == sorted(cache.contents()) == sorted(other.contents())
    assert not known.keys() & set(went)
    assert other.recall("u") == ("v", digest_of(b"stays"))
    bring(other, b"other", "b")
    agrees(cache)
    other.close()


def test_a_full_disk_at_the_index_leaves_all_as_it_was(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    bring(cache, b"data", "a")
    with monkeypatch.context() as patch:
        write = os.pwrite
        patch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:5], at))
        with pytest.raises(OSError, match="no room"):
            bring(cache, b"more", "a")
    assert cache.contents() == [(digest_of(b"data"), 4)]
    bring(cache, b"more", "a")
    agrees(cache)


# -- holders ----------------------------------------------------------------------------------------------


def test_two_of_one_name_are_one_too_many(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tercel.data.cache.LOCK_WAIT_S", 0.0)
    with pytest.raises(OSError, match="another one uses this cache"):
        opened(tmp_path, "one")
    assert lives_on(cache)


def test_who_is_stopped_with_the_lock_keeps_others_from_adding_but_not_from_their_files(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened(tmp_path, "two")
    bring(cache, b"data", "a")
    monkeypatch.setattr(cache_files, "LOCK_WAIT_S", 0.0)
    with other._alone():
        assert cache.get(digest_of(b"data"), "b") is not None
        cache.unpin("b")
        with pytest.raises(CacheBusy, match="locked by another process"):
            bring(cache, b"more", "a")
    bring(cache, b"more", "a")
    other.close()


# -- where it may be --------------------------------------------------------------------------------------


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="no hard links or no locks: put the cache on a local disk"):
        opened(tmp_path, "one")


def test_another_users_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(OSError, match="another user's"):
        opened(tmp_path, "one")


@pytest.mark.parametrize("part", ["objects", "objects/ab", "pins", "pins/one", "claims", "trash"])
def test_a_link_in_place_of_a_part_is_refused(tmp_path: Path, part: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = tmp_path / "cache" / part
    place.parent.mkdir(parents=True)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="a link"):
        opened(tmp_path, "one")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_it_is_closed_to_others(cache: Cache) -> None:
    for path in [cache.dir, *cache.dir.iterdir()]:
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("bad", ["", "..", "../x", ".lock", "a/b", "a+b", "a\0b", "a\n", "x" * 200])
def test_names_that_lead_astray_are_refused(cache: Cache, tmp_path: Path, bad: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        cache.get(digest_of(b""), bad)
    with pytest.raises(UsageError, match="no name"):
        Cache(tmp_path, ROOM, bad)
    for digest in (bad, f"blake3:{bad}", f"blake3:../{'a' * 61}", f"md5:{'A' * 32}"):
        with pytest.raises(UsageError, match="digest"):
            cache.get(digest, "a")
        with pytest.raises(UsageError, match="digest"):
            cache.claim(digest)
        with pytest.raises(UsageError, match="digest"):
            cache.discard(digest)
