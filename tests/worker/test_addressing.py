"""Which of the files that were gathered goes where: patterns mean the same here as to the runner that gathered by them."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tercel.core.declared import Leaving
from tercel.core.files import KEPT, Trouble, When
from tercel.runners.gathering import COPY, Gathering
from tercel.worker.addressing import Address, Undeliverable, addresses, is_of
from tests.worker.stage import report

NAMES = st.sampled_from(["a", "b", "ab", ".a", ".h", "a.t", "b.t", "[a]", "*", "d", "e", "ä b", "a\nb"])
TREES = st.lists(st.lists(NAMES, min_size=1, max_size=4).map("/".join), max_size=8)
PARTS = st.sampled_from(
    ["a", "*", "**", "?", "a*", ".*", "[ab]", "[!a]", "*.t", ".h", "[[]a]", "[*]", "d", "e"]
)
PATTERNS = st.lists(PARTS, min_size=1, max_size=4).map("/".join)


def _made(root: Path, paths: list[str]) -> None:
    for path in paths:
        try:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(b"")
        except OSError:
            continue  # a file is in the place of a directory, or the other way round


def _gathered(root: Path, to: Path, patterns: list[str]) -> set[str]:
    gathering = Gathering(str(root).encode(), COPY, False, str(to).encode())
    try:
        for _ in gathering.work(patterns):
            pass
        return {path for path, _ in gathering.gathered}
    finally:
        gathering.close()


@settings(max_examples=100, deadline=None)
@given(TREES, st.lists(PATTERNS, min_size=1, max_size=3))
def test_each_declaration_has_the_files_that_the_runner_gathered_by_it(
    paths: list[str], patterns: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "task"
        root.mkdir()
        _made(root, paths)
        alone = [_gathered(root, Path(name) / str(at), [pattern]) for at, pattern in enumerate(patterns)]
        together = _gathered(root, Path(name) / "all", patterns)
    assert together == set().union(*alone)
    for pattern, found in zip(patterns, alone, strict=True):
        assert {path for path in together if is_of(path, pattern)} == found


def _leaving(pattern: str, *to: str, name: str = "") -> Leaving:
    return Leaving(pattern, to, name, True, When.ALWAYS)


def test_directory_that_is_named_goes_with_all_that_is_in_it_hidden_or_not() -> None:
    left = report(1, gathered=(("d/x", 1), ("d/.h/y", 1), ("e", 1)))
    assert addresses(left, [_leaving("d", "sftp://s/o/")]) == [
        Address("d/.h/y", ("sftp://s/o/d/.h/y",), ""),
        Address("d/x", ("sftp://s/o/d/x",), ""),
    ]


def test_what_has_only_a_name_is_kept_at_the_manager() -> None:
    left = report(1, gathered=(("a", 1), ("b", 1)))
    assert addresses(left, [_leaving("*", name="lfn:o/")]) == [
        Address("a", (KEPT,), "lfn:o/a"),
        Address("b", (KEPT,), "lfn:o/b"),
    ]


def test_more_files_than_a_link_takes_a_report_of_are_refused_before_any_is_delivered() -> None:
    left = replace(report(1), gathered=tuple((f"parts/{number:0100}", 1) for number in range(40_000)))
    with pytest.raises(Undeliverable, match="40,000 files") as refused:
        addresses(left, [_leaving("parts/*", "sftp://store.lab/results/")])
    assert refused.value.hitch.trouble is Trouble.REFUSED


def test_a_plain_name_stands_for_the_file_or_for_all_in_the_directory_and_for_no_other() -> None:
    paths = ["a", "a b", "a!", "a-b", "a.t", "a/x", "a/y/z", "a0", "aa/x", "b"]
    left = replace(report(1), gathered=tuple((path, 1) for path in paths))

    def found(pattern: str) -> list[str]:
        return [address.path for address in addresses(left, [_leaving(pattern)])]

    for pattern in ("a", "./a", "a/y", "a/x", "aa", "a0", "c"):
        assert found(pattern) == [path for path in paths if is_of(path, pattern)]
