"""What each task reads and leaves, with its point's values filled in: never outside its directory, whatever they are."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tercel.core.commands import check_spec
from tercel.core.declared import MAX_DECLARED, MAX_TEXT_BYTES, Declared, Leaving, Wanted, check_data
from tercel.core.declaring import parse_input, parse_output
from tercel.core.errors import UsageError
from tercel.core.files import Input, Output, When
from tercel.core.grids import Axis, Grid
from tercel.core.locating import canonical, placed
from tercel.core.model import Call, Function, JobSpec


def job(*, ins: tuple[str, ...] = (), outs: tuple[str, ...] = (), **fields: Any) -> JobSpec:
    fields.setdefault("argv", ("./go.sh",))
    return JobSpec(inputs=tuple(map(parse_input, ins)), outputs=tuple(map(parse_output, outs)), **fields)


def sweep(**axes: tuple[str, ...]) -> Grid:
    return Grid(axes=tuple(Axis(name=name, values=values) for name, values in axes.items()))


def test_each_task_has_its_own_names() -> None:
    spec = job(
        ins=("up:1f/data/run{task}.root", "s3://b/{C}.db=geo.db", "https://h/a/x{job}?v={task}"),
        outs=(
            "hist_{C}_*.root -> sftp://store/{job}/",
            "r.json -> s3://b/{task} lfn:fit/{job}/{task}; optional, always",
        ),
        grid=sweep(C=("1", "[2]")),
        template=True,
    )
    check_spec(spec)
    for declared in (Declared(spec), Declared(spec.program)):
        assert declared.inputs_of(37, 1) == [
            Wanted("up:1f/data/run1.root", "run1.root", ""),
            Wanted("s3://b/[2].db", "geo.db", ""),
            Wanted("https://h/a/x37?v=1", "x37", ""),
        ]
        assert declared.outputs_of(37, 1) == [
            Leaving("hist_[[]2]_*.root", ("sftp://store/37/",), "", False, When.FINISHED),
            Leaving("r.json", ("s3://b/1",), "lfn:fit/37/1", True, When.ALWAYS),
        ]


def test_items_fill_the_holes_of_declarations_too() -> None:
    spec = job(ins=("{url}",), outs=("{name}.txt",), template=True)
    items = [json.dumps({"url": f"https://h/{n}.db", "name": n}) for n in ("a", "b")]
    check_spec(spec, items=items)
    declared = Declared(spec)
    assert declared.inputs_of(7, 1, items[1]) == [Wanted("https://h/b.db", "b.db", "")]
    assert declared.outputs_of(7, 1, items[1])[0].name == "lfn:job/7/1/b.txt"


def test_braces_stand_for_themselves_when_doubled() -> None:
    declared = Declared(job(ins=("lfn:a{{x}}",)))
    assert declared.inputs_of(1, 0) == [Wanted("lfn:a{x}", "a{x}", "")]


def test_a_file_may_be_read_and_left_under_one_name() -> None:
    check_spec(job(ins=("lfn:state",), outs=("state",)))


BAD_VALUES = [
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    "a//b",
    "a/./b",
    "",
    "a\nb",
    "a\0b",
    "x" * 256,
    "a/" * 2000 + "b",
]


@pytest.mark.parametrize("value", BAD_VALUES)
def test_a_value_that_leads_out_of_the_directory_is_refused_when_it_is_filled_in(value: str) -> None:
    grid = sweep(x=("good", value))
    for spec in (
        job(ins=("lfn:a -> {x}",), grid=grid, template=True),
        job(outs=("{x}",), grid=grid, template=True),
    ):
        declared = Declared(spec)
        declared.inputs_of(1, 0)
        declared.outputs_of(1, 0)
        if value == "" and spec.inputs:
            assert declared.inputs_of(1, 1)[0].name == "a"
            continue
        with pytest.raises(UsageError, match="no path in a task's directory"):
            declared.inputs_of(1, 1)
            declared.outputs_of(1, 1)
        with pytest.raises(UsageError):
            check_spec(spec)


@given(
    st.text(max_size=30) | st.lists(st.sampled_from(["..", "/", ".", "a", "*", "["]), max_size=8).map("".join)
)
def test_no_value_whatever_makes_a_path_that_leaves_the_directory(value: str) -> None:
    spec = job(ins=("lfn:a -> in/{x}",), outs=("out{x}/y -> lfn:z",), grid=sweep(x=(value,)), template=True)
    declared = Declared(spec)
    for found in (lambda: declared.inputs_of(1, 0)[0].name, lambda: declared.outputs_of(1, 0)[0].pattern):
        try:
            path = found()
        except UsageError:
            continue
        assert not path.startswith("/") and not {"", ".", ".."} & set(path.split("/"))


@pytest.mark.parametrize(
    ("ins", "outs", "what"),
    [
        (["lfn:a -> ../x"], [], "leads out of that directory"),
        (["lfn:a -> /x"], [], "it is absolute"),
        (["lfn:a -> x/"], [], "an empty part"),
        (["lfn:a -> x//y"], [], "an empty part"),
        (["lfn:a -> x\ty"], [], "control characters"),
        (["lfn:a -> " + "x" * 300], [], "longer than 255 bytes"),
        (["lfn:a", "s3://b/a"], [], "have the same name in a task's directory: 'a'"),
        (["data/x"], [], "neither a URL nor a name"),
        (["tercel:blake3:00"], [], "neither a URL nor a name"),
        (["lfn:"], [], "has no name at its source"),
        (["lfn:a//b"], [], "has a part that is empty"),
        (["lfn:../b"], [], "has a part that is empty"),
        (["https://h/"], [], "has no name at its source"),
        (["https://h"], [], "has no name at its source"),
        (["https:///x"], [], "names no host"),
        (["s3:///x"], [], "names no bucket"),
        (["file://data/x"], [], "file:///data/x"),
        (["file:///a/../x"], [], "has .. in it"),
        (["https://me@h/x"], [], "has a login in it"),
        (["sftp://me:pw@h/x"], [], "has a login in it"),
        (["https://h/x?a=1&X-Amz-Signature=abc -> x"], [], "has X-Amz-Signature in it"),
        (["zip://a::s3://b/c"], [], "an address within another"),
        (["lfn:{x}"], [], "nothing is called 'x' in this job"),
        (["lfn:{"], [], "unclosed {"),
        ([], ["/tmp/x"], "it is absolute"),
        ([], ["../x"], "leads out"),
        ([], ["x -> /data/"], "file:///data/ for the worker's own disks"),
        ([], ["x -> up:1f/x"], "no destination"),
        ([], ["x -> https://me:pw@h/"], "has a login"),
        ([], ["x -> s3://b"], "names no file there"),
        ([], ["x -> lfn:a/../b"], "has a part that is empty"),
        ([], ["x -> lfn:a lfn:b"], "has 2 names"),
        ([], ["*.x -> s3://b/c"], "may be several files"),
        ([], ["*.x -> lfn:c"], "may be several files"),
        ([], ["x -> s3://b/c", "y -> s3://b/c"], "have the same destination"),
        ([], ["x -> lfn:c s3://b/", "y -> lfn:c"], "have the same destination"),
        ([], ["x -> s3://b/{C}"], "nothing is called 'C'"),
    ],
)
def test_what_cannot_be_is_refused_when_it_is_handed_in(ins: list[str], outs: list[str], what: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(job(ins=tuple(ins), outs=tuple(outs)))
    assert what in str(caught.value)
    assert caught.value.field.startswith("inputs" if ins else "outputs")


@pytest.mark.parametrize("secret", ["hunter2", "hun%2Fter"])
@pytest.mark.parametrize(
    "url",
    [
        "https://me:SECRET@h/x",
        "sftp://me:SECRET@h/x\n",
        "https://h/x?sig=SECRET",
        "https://h/x?a=b&token=SECRET",
        "https://h/x?api_key=SECRET",
        "https://SECRET@h/../x",
    ],
)
def test_no_complaint_shows_a_secret(url: str, secret: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(JobSpec(argv=("a",), inputs=(Input(source=url.replace("SECRET", secret), name="x"),)))
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sftp://me@store:22/x",
        "s3://b/a b/ü?#.x",
        "http://[::1]:80/x",
        "memory://x/y",
        "file:///data/x",
        "s3://b//x",
    ],
)
def test_a_login_by_name_and_unusual_letters_are_fine(url: str) -> None:
    check_spec(job(ins=(f"{url} -> x",), outs=(f"x -> {url}",)))


@pytest.mark.parametrize(
    ("out", "good"),
    [
        ("x -> lfn:fit", False),
        ("x -> lfn:fit/{job}", False),
        ("x -> lfn:fit/{job}/", False),
        ("x -> lfn:fit/{task}", True),
        ("x{task} -> lfn:fit/", True),
        ("x -> s3://b/{job}/x", False),
        ("x -> s3://b/{job}/", False),
        ("x -> s3://b/{task}/ s3://c/", False),
        ("x*-> s3://b/{job}/", True),
        ("x", True),
    ],
)
def test_tasks_that_would_replace_one_anothers_outputs_are_refused(out: str, good: bool) -> None:
    check_spec(job(outs=(out,)))
    if good:
        check_spec(job(outs=(out,), array="0-9"))
    else:
        with pytest.raises(UsageError, match=r"every task would write .* put {task} into it"):
            check_spec(job(outs=(out,), array="0-9"))


def test_a_job_with_data_runs_in_its_sandbox() -> None:
    for spec in (job(ins=("lfn:a",), cwd="/tmp"), job(outs=("a",), cwd="/tmp")):
        with pytest.raises(UsageError, match="leave cwd out") as caught:
            check_spec(spec)
        assert caught.value.field == "cwd"


def test_a_functions_job_has_no_files() -> None:
    spec = job(ins=("lfn:a",), argv=(), function=Function(code=b"x", python="3.11"))
    with pytest.raises(UsageError, match="a function gets its data by its arguments"):
        check_spec(spec, calls=[Call(b"")])


def test_a_name_that_means_two_things_is_refused() -> None:
    with pytest.raises(UsageError, match="is the job's number here"):
        check_spec(job(outs=("x",), argv=("go", "{job}"), grid=sweep(job=("1", "2")), template=True))
    with pytest.raises(UsageError, match="is the task's number here"):
        check_spec(job(outs=("x",), template=True), items=['{"task": "mine"}'])


def test_an_item_that_lacks_a_name_or_makes_no_place_is_told_by_its_number() -> None:
    spec = job(ins=("{url}",), template=True)
    for second, what in (("{}", "nothing is called 'url'"), ('{"url": "x.db"}', "neither a URL nor a name")):
        with pytest.raises(UsageError, match=what) as caught:
            check_spec(spec, items=['{"url": "lfn:a"}', second])
        assert caught.value.field == "items[1]"


def test_inputs_and_outputs_are_bounded_in_number_and_length() -> None:
    many = tuple(Input(source=f"lfn:{n}") for n in range(MAX_DECLARED + 1))
    check_spec(JobSpec(argv=("a",), inputs=many[1:]))
    with pytest.raises(UsageError, match="10,001 inputs; at most 10,000"):
        check_spec(JobSpec(argv=("a",), inputs=many))
    long = tuple(Output(name=f"{n}", to=(f"lfn:{'x' * 4000}{n}",)) for n in range(MAX_TEXT_BYTES // 4000 + 1))
    with pytest.raises(UsageError, match="bytes of text"):
        check_spec(JobSpec(argv=("a",), outputs=long))


def test_an_output_without_a_destination_is_refused_where_it_was_not_written_as_text() -> None:
    with pytest.raises(UsageError, match="goes nowhere"):
        check_spec(JobSpec(argv=("a",), outputs=(Output(name="x", to=()),)))


@pytest.mark.parametrize(
    ("destination", "pattern", "path", "where"),
    [
        ("s3://b/x", "out/y", "out/y", "s3://b/x"),
        ("s3://b/", "out/y", "out/y", "s3://b/y"),
        ("s3://b/", "out/*.root", "out/a.root", "s3://b/a.root"),
        ("lfn:b/", "*/x", "a/x", "lfn:b/a/x"),
        ("lfn:b/", "**/*.x", "a/b/c.x", "lfn:b/a/b/c.x"),
    ],
)
def test_what_goes_into_a_directory_keeps_what_its_pattern_leaves_open(
    destination: str, pattern: str, path: str, where: str
) -> None:
    assert placed(destination, pattern, path) == where


def test_names_made_of_uploaded_paths_are_one_name_however_the_path_is_written() -> None:
    for path in ("a/b", "/a/b", "./a//b", "../a/c/../b"):
        assert canonical(f"up:1f/{path}") == "up:1f/a/b"
    assert canonical("lfn:a//b") == "lfn:a//b"


@pytest.mark.parametrize("to", ["file:///out/{a}.txt", "lfn:out/{a}", "file:///out/{a}/"])
def test_points_that_would_write_one_place_are_refused(to: str) -> None:
    """Or the last of them would be all that is kept, and every task finished."""
    grid = Grid(axes=(Axis(name="a", values=("1", "2")), Axis(name="b", values=("1", "2"))))
    spec = JobSpec(argv=("x",), grid=grid, template=True, outputs=(Output(name="o", to=(to,)),))
    with pytest.raises(UsageError, match="tasks 0 and 1 would both write"):
        check_data(spec, [(0, 3)], None)
    items = ['{"a": 1}', '{"a": 2}', '{"a": 1}']
    spec = JobSpec(argv=("x",), template=True, outputs=(Output(name="o", to=(to,)),))
    with pytest.raises(UsageError, match="tasks 0 and 2 would both write"):
        check_data(spec, [(0, 2)], items)
