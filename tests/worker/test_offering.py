"""Tags and resources as people write them, right and wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.errors import UsageError
from tercel.core.placement import MAX_TAGS
from tercel.worker.offering import Offered, read_resources, read_tags


@pytest.mark.K(3)
def test_tags_are_kept_in_order_and_each_once() -> None:
    assert read_tags(["STAR", "Python3.11", "STAR", "größe"]) == ("STAR", "Python3.11", "größe")


@pytest.mark.must("d")
@pytest.mark.parametrize(
    "tag", ["", " ", "a b", "a,b", "a\nb", "a\0", "\x1b[31m", "x" * 101, "a\u2028b", "a\u00a0b"]
)
def test_a_tag_that_is_none_is_told(tag: str) -> None:
    with pytest.raises(UsageError, match="1 to 100 printable characters") as told:
        read_tags(["STAR", tag])
    assert told.value.field == "tag"
    assert "\x1b" not in str(told.value)


@pytest.mark.must("d")
def test_ten_thousand_tags_are_the_most() -> None:
    tags = [f"t{number}" for number in range(MAX_TAGS)]
    assert len(read_tags(tags + tags)) == MAX_TAGS
    with pytest.raises(UsageError, match="10,001 tags; at most 10,000"):
        read_tags([*tags, "one more"[:3]])


def test_resources_are_countable_or_indexed_and_gpus_both() -> None:
    assert read_resources(["licence.matlab=2", "half=0.5", "port=[8000, 8001]"]) == Offered(
        {"licence.matlab": 2000, "half": 500}, {"port": ("8000", "8001")}
    )
    assert read_resources([]).gpus is None
    assert read_resources(["gpus=auto"]).gpus is None
    assert read_resources(["gpus=0"]).gpus == 0
    assert read_resources(["gpus=2"]).gpus == 2
    assert read_resources(["gpus=[0,GPU-7]"]).gpus == ("0", "GPU-7")


@pytest.mark.must("d")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x"], "write NAME=AMOUNT"),
        (["=2"], "is no name"),
        (["9x=2"], "is no name"),
        (["a b=2"], "is no name"),
        (["a\n=2"], "is no name"),
        (["x" * 65 + "=1"], "is no name"),
        (["x=-1"], "a number from 0.001"),
        (["x=nan"], "a number from 0.001"),
        (["x=inf"], "a number from 0.001"),
        (["x=0"], "a number from 0.001"),
        (["x="], "a number from 0.001"),
        (["x=two"], "a number from 0.001"),
        (["x=1", "x=2"], "given twice"),
        (["x=1", "x=[a]"], "given twice"),
        (["x=[]"], "write its pieces as"),
        (["x=[a"], "write its pieces as"),
        (["x=[a,,b]"], "write its pieces as"),
        (["x=[a\x07]"], "write its pieces as"),
        (["x=[a,b,a]"], "two pieces of one name"),
        (["x=[" + ",".join(map(str, range(1001))) + "]"], "1,001 pieces"),
        (["gpus=0.5"], "write auto, a whole number"),
        (["gpus=-1"], "write auto, a whole number"),
        (["gpus=some"], "write auto, a whole number"),
        (["gpus=99999999999999999999"], "write auto, a whole number"),
        (["gpus=1", "gpus=auto"], "given twice"),
        (["cpus=3"], "an option of its own"),
        (["mem=3"], "an option of its own"),
        ([f"r{n}=1" for n in range(1001)], "1,001 resources"),
    ],
)
def test_a_resource_that_makes_no_sense_is_told(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as told:
        read_resources(words)
    assert told.value.field == "resource"


@given(st.lists(st.text(max_size=30), max_size=5))
def test_whatever_is_written_is_read_or_refused(words: list[str]) -> None:
    for read in (read_resources, read_tags):
        try:
            read(words)
        except UsageError:
            pass
