"""Inputs and outputs in job files, flows, scripts and Python programs."""

from pathlib import Path

import blake3
import pytest

from tercel.core.errors import UsageError
from tercel.core.files import Input, Output, When
from tercel.sdk import AsyncClient
from tercel.sdk.files import Draft, read_file
from tercel.wire import api
from tests.cli.fake_manager import FakeManager, problem


def read(name: str, text: str) -> list[Draft]:
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    return read_file(name)


def test_a_job_file_has_texts_and_tables() -> None:
    [draft] = read(
        "job.toml",
        'command = "./go.sh"\n'
        'inputs = ["a", {source = "s3://b/y=1/x", name = "x"}]\n'
        'outputs = ["log.txt; always", {name = "a;b", to = "lfn:x"}, {name = "*.c", to = ["s3://b/"], when = "failed"}]\n',
    )
    job = draft.submission
    assert job.inputs == (Input(source="a"), Input(source="s3://b/y=1/x", name="x"))
    assert job.outputs == (
        Output(name="log.txt", to=("lfn:job/{job}/{task}/log.txt",), when=When.ALWAYS),
        Output(name="a;b", to=("lfn:x",)),
        Output(name="*.c", to=("s3://b/",), when=When.FAILED),
    )
    assert job.cwd == ""


def test_paths_begin_where_the_file_is(monkeypatch: pytest.MonkeyPatch) -> None:
    [draft] = read("{x}/job.toml", 'command = "true"\ninputs = ["a/{task}", "/b", "lfn:c", "~/d", "{{e}}"]')
    home = str(Path.home())
    assert [one.source for one in draft.submission.inputs] == [
        *("{{x}}/a/{task}", "/b", "lfn:c", f"{home}/d", "{{x}}/{{e}}"),
    ]


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('inputs = "lfn:a -> ../x"', "job.toml:2: inputs: "),
        ('inputs = [{name = "x"}]', "job.toml:2: inputs[0]: source is missing"),
        ('inputs = [{source = "x", nmae = "y"}]', "did you mean 'name'?"),
        ('outputs = [{name = "x", when = "now"}]', "'now' is not one of finished, failed, always"),
        ('outputs = ["x", "y; never"]', "job.toml:2: outputs[1]: 'y; never': after ; come"),
        ('outputs = "x"\ncwd = "/tmp"', "job.toml:3: cwd: outputs are in a task's own directory"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(line: str, what: str) -> None:
    with pytest.raises(UsageError) as caught:
        read("job.toml", f'command = "true"\n{line}\n')
    assert what in str(caught.value)


def test_a_flows_step_with_data_runs_in_its_sandbox_and_the_others_where_the_user_is() -> None:
    make, use = read(
        "flow.toml",
        '[step.make]\ncommand = "./make"\noutputs = "x -> lfn:x"\n[step.use]\ncommand = "./use"\nneeds = "make"\n',
    )
    assert (make.submission.cwd, use.submission.cwd) == ("", str(Path.cwd()))


def test_a_script_has_one_on_each_line() -> None:
    [draft] = read(
        "job.sh", "#!/bin/sh\n#TERCEL --in a --in lfn:b\n#TERCEL --in c\n#TERCEL --out 'x; optional'\ntrue\n"
    )
    assert [one.source for one in draft.submission.inputs] == ["a", "lfn:b", "c"]
    assert draft.submission.outputs[0].optional


async def test_a_program_gives_them_as_text_or_by_parts_and_its_files_are_uploaded(
    manager: FakeManager,
) -> None:
    Path("x").write_bytes(b"x")
    content = f"/v1/contents/blake3:{blake3.blake3(b'x').hexdigest()}"
    manager.says("HEAD", content, problem(404, "no"))
    manager.says("PUT", content, {})
    manager.says("POST", "/v1/files", {})
    manager.says("POST", "/v1/jobs", api.Submitted(id=37, tasks=1, name=""))
    manager.says("POST", "/v1/flows", api.FlowSubmitted(jobs=[]))
    async with AsyncClient() as client:
        await client.submit_command(
            "true",
            inputs=["x", {"source": "lfn:y", "name": "z"}],
            outputs=["a", {"name": "b", "to": "s3://b/"}],
        )
        await client.submit_flow([api.Submission(line="true", inputs=(Input(source="x"),))])
    [sent], [flow] = manager.asked("POST", "/v1/jobs"), manager.asked("POST", "/v1/flows")
    name = manager.asked("POST", "/v1/files")[0].json()["name"]
    assert sent.json()["inputs"] == [{"source": name}, {"source": "lfn:y", "name": "z"}]
    assert [one["to"] for one in sent.json()["outputs"]] == [["lfn:job/{job}/{task}/a"], ["s3://b/"]]
    assert flow.json()["jobs"][0]["inputs"] == [{"source": name}]


@pytest.mark.parametrize("inputs", [[{"sorce": "x"}], [{"source": 1}], [{}]])
async def test_parts_that_there_are_not_are_refused(
    inputs: list[dict[str, str]], manager: FakeManager
) -> None:
    async with AsyncClient() as client:
        with pytest.raises(UsageError, match="inputs: "):
            await client.submit_command("true", inputs=inputs)
