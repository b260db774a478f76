"""Inputs and outputs as people write them: what is understood, what is refused, and that it can be written back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.declaring import input_text, kept, output_text, parse_input, parse_output
from tercel.core.errors import UsageError
from tercel.core.files import Input, Output, When

SHA = "sha256:" + "0a" * 32


@pytest.mark.parametrize(
    ("text", "source", "name", "digest"),
    [
        ("data/run{task}.root", "data/run{task}.root", "", ""),
        ("s3://bucket/geometry.db=geo.db", "s3://bucket/geometry.db", "geo.db", ""),
        ("lfn:calib/2026", "lfn:calib/2026", "", ""),
        ("https://host/x?y=z", "https://host/x?y=z", "", ""),
        ("https://host/x?y=z -> z.json", "https://host/x?y=z", "z.json", ""),
        ("s3://b/year=2026/x.csv -> in/x.csv", "s3://b/year=2026/x.csv", "in/x.csv", ""),
        (f"lfn:calib/2026 {SHA}", "lfn:calib/2026", "", SHA),
        (f"  my file.txt=a b.txt {SHA.upper()} ", "my file.txt", "a b.txt", SHA),
        (f"{{f}} -> {{f}} {SHA}", "{f}", "{f}", SHA),
        ("a->b", "a", "b", ""),
        ("x=./y", "x=./y", None, ""),
        ("x -> ./y", "x", "y", ""),
    ],
)
def test_an_input_is_read_as_it_is_meant(text: str, source: str, name: str | None, digest: str) -> None:
    if name is None:
        with pytest.raises(UsageError, match="does a name follow the ="):
            parse_input(text)
    else:
        assert parse_input(text) == Input(source=source, name=name, digest=digest)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no source"),
        ("-> x", "no source"),
        ("x ->", "no name"),
        ("a -> b -> c", "more than one ->"),
        ("data/year=2026/x.csv", "'data/year=2026/x.csv -> x.csv'"),
        ("x=", "does a name follow"),
        ("=x", "does a name follow"),
        (f"x={SHA}", "no name before the digest"),
        ("x sha256:12", "no digest: there is blake3: and 64 hex digits"),
        ("x md5:" + "g" * 32, "no digest"),
    ],
)
def test_an_input_that_could_mean_two_things_or_none_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_input(text)
    assert what in str(caught.value)
    assert caught.value.field == "inputs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("log.txt", Output(name="log.txt", to=("lfn:job/{job}/{task}/log.txt",))),
        ("./out/log.txt", Output(name="out/log.txt", to=("lfn:job/{job}/{task}/out/log.txt",))),
        ("*.log; optional", Output(name="*.log", to=("lfn:job/{job}/{task}/",), optional=True)),
        ("result.json=lfn:fit/{job}/{task}", Output(name="result.json", to=("lfn:fit/{job}/{task}",))),
        ("hist_*.root -> sftp://store/{job}/", Output(name="hist_*.root", to=("sftp://store/{job}/",))),
        (
            "x=1.csv -> s3://b/y=2/ , file:///a b,c  lfn:n ; on  failure",
            Output(name="x=1.csv", to=("s3://b/y=2/", "file:///a b,c", "lfn:n"), when=When.FAILED),
        ),
        (
            "core.* -> s3://b/; Always, optional",
            Output(name="core.*", to=("s3://b/",), optional=True, when=When.ALWAYS),
        ),
        ("a=https://h/?x=y", Output(name="a", to=("https://h/?x=y",))),
    ],
)
def test_an_output_is_read_as_it_is_meant(text: str, expected: Output) -> None:
    assert parse_output(text) == expected


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "incomplete"),
        ("x ->", "incomplete"),
        ("-> s3://b/", "incomplete"),
        ("=s3://b/", "incomplete"),
        ("a -> b -> c", "more than one ->"),
        ("result.json=results/", "'results/' is no destination"),
        ("year=2026.csv", "'year=2026.csv -> lfn:job/{job}/{task}/year=2026.csv'"),
        ("log.txt; alwyas", "after ; come `optional`"),
        ("log.txt;", "after ; come `optional`"),
        ("log.txt; always, on failure", "after ; come `optional`"),
    ],
)
def test_an_output_that_is_half_understood_is_refused(text: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_output(text)
    assert what in str(caught.value)
    assert caught.value.field == "outputs"


signs = "/ | = | -> |->|;|,|?|*| |\n|ü|{task}|./|../".split("|")
words = [
    *"a b.txt lfn: up: s3://b/ https://h/x file:/// always".split(),
    SHA,
    f" {SHA}",
    "; optional",
    "; on failure",
]
pieces = st.sampled_from([*signs, *words])
texts = st.lists(pieces, max_size=8).map("".join) | st.text(max_size=20)


@given(texts)
def test_whatever_is_read_as_an_input_can_be_written_back(text: str) -> None:
    try:
        found = parse_input(text)
    except UsageError:
        return
    assert parse_input(input_text(found)) == found


@given(texts)
def test_whatever_is_read_as_an_output_can_be_written_back(text: str) -> None:
    try:
        found = parse_output(text)
    except UsageError:
        return
    assert parse_output(output_text(found)) == found
    assert found.to


def test_what_is_kept_at_the_manager_has_a_name_for_each_task() -> None:
    assert kept("a/b.txt") == "lfn:job/{job}/{task}/a/b.txt"
    assert kept("a/*.txt") == "lfn:job/{job}/{task}/"


def test_words_may_each_have_a_semicolon_of_their_own() -> None:
    assert parse_output("x; optional; always") == parse_output("x; optional, always")
