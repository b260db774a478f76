"""Writes the parts of docs/reference, and the schemas of job files, that come from the code: `python docs/generate.py`.

tests/test_docs.py compares what is there with what this would write.
"""

import ast
import inspect
import json
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import click

from tercel.cli.app import tercel
from tercel.core.attributes import ATTRIBUTES, Of
from tercel.core.states import RESUMES, Stage, TaskEvent, TaskState, drawing, moves
from tercel.manager.routes import OPERATIONS
from tercel.sdk.files.flow import FLOW
from tercel.sdk.files.keys import KEYS, members
from tercel.sdk.files.kinds import Kind, Schema
from tercel.sdk.files.schema import SCHEMAS

REFERENCE = Path(__file__).parent / "reference"
SHIPPED = Path(__file__).parent.parent / "src" / "tercel" / "schemas"


def cli() -> str:
    parts = ["# Commands", "", "Generated from the code by `python docs/generate.py`.", ""]
    for path, command, context in _commands("tercel", tercel, None):
        parts += [f"## {path}", "", "```", command.get_help(context), "```", ""]
    return "\n".join(parts)


def _commands(
    path: str, command: click.Command, parent: click.Context | None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    settings = command.context_settings | {"terminal_width": 100, "max_content_width": 100}
    context = click.Context(command, info_name=path.split()[-1], parent=parent, **settings)
    yield path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            sub = command.get_command(context, name)
            if sub is not None:
                yield from _commands(f"{path} {name}", sub, context)


def http() -> str:
    parts = [
        "# HTTP API",
        "",
        "Generated from the code by `python docs/generate.py`; the whole description, with every type, is the OpenAPI",
        "document that a manager serves at `/v1/openapi.json`. Every request but `/v1/health` needs",
        "`Authorization: Bearer <token>`. Errors are problem details (RFC 9457) with the wrong `field`.",
        "",
        "| request | what it does | body | answer |",
        "|---|---|---|---|",
    ]
    for operation in OPERATIONS:
        body = operation.body.__name__ if operation.body else ""
        answer = operation.answer.__name__ if operation.answer else operation.media
        query = "&".join(f"{p.name}=" for p in operation.parameters if p.where == "query")
        request = f"{operation.method} {operation.path}" + (f"?{query}" if query else "")
        parts.append(f"| `{request}` | {operation.summary} | {body} | {answer} |")
    return "\n".join([*parts, ""])


def states() -> str:
    rows = [
        "# The states of a task",
        "",
        "Generated from `tercel.core.states` by `python docs/generate.py`: do not edit.",
        "",
        "```mermaid",
        drawing().rstrip(),
        "```",
        "",
        "| state | meaning |",
        "|---|---|",
        *[f"| `{state}` | {meaning} |" for state, meaning in _meanings(TaskState).items()],
        "",
        "| event | meaning | from | to |",
        "|---|---|---|---|",
    ]
    for event, meaning in _meanings(TaskEvent).items():
        ways = [(before, after) for before, what, after in moves() if what == event]
        for at, (before, after) in enumerate(ways):
            name, text = (f"`{event}`", meaning) if at == 0 else ("", "")
            rows.append(f"| {name} | {text} | `{before}` | `{after}` |")
    rows += [
        "",
        "On `unblock` a task goes on by the stage in which it met its fault:",
        "",
        "| stage | meaning | goes on as |",
        "|---|---|---|",
        *[f"| `{stage}` | {text} | `{RESUMES[Stage(stage)]}` |" for stage, text in _meanings(Stage).items()],
    ]
    return "\n".join(rows) + "\n"


def _meanings(kind: type[StrEnum]) -> dict[str, str]:
    """Each member's value and the text below it in the source."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    value = ""
    for line in definition.body:
        match line:
            case ast.Assign(value=ast.Constant(value=str() as value)):
                pass
            case ast.Expr(value=ast.Constant(value=str() as text)) if value:
                found[value] = " ".join(text.split())
    return found


def job_files() -> str:
    """The keys of job files as a table."""
    parts = [
        "# Job files",
        "",
        "Generated from the code by `python docs/generate.py`. How to use them: [job files](../how-to/job-files.md),",
        "[graphs](../how-to/graphs.md).",
        "",
        "## Keys of a job",
        "",
        "| key | value | meaning | option |",
        "|---|---|---|---|",
    ]
    meanings = members(KEYS)
    for key in KEYS:
        kind, meaning = meanings[key.name]
        options = ", ".join(f"`{flag}`" for flag in key.flags)
        parts.append(f"| `{key.name}` | {_kind(kind)} | {_cell(meaning)} | {options} |")
    parts += ["", "## Keys of a flow", "", "| key | value | meaning |", "|---|---|---|"]
    for name, (kind, meaning) in FLOW.members.items():
        parts.append(f"| `{name}` | {_kind(kind)} | {_cell(meaning)} |")
    needs = 'a step\'s name, or a list of names and of `{step = NAME, tasks = "same"}`'
    parts += ["", f"A step has the keys of a job, a `name`, and `needs`: {needs}.", ""]
    return "\n".join(parts)


def attributes() -> str:
    """What expressions may ask about."""
    parts = [
        "# Attributes",
        "",
        "Generated from `tercel.core.attributes` by `python docs/generate.py`: do not edit.",
        "",
        "What `--where` and `--rank` may ask about, in [CEL](../explanation/expressions.md):",
        "",
        "```",
        "--where 'worker.mem_free >= 8*GB && worker.os == \"linux\" && worker.gpu.mem >= 40*GB'",
        "--rank  'worker.cached_bytes + 10*worker.speed'",
        "```",
        "",
    ]
    for of, heading in _OF.items():
        parts += [f"## {heading}", "", "| attribute | value | meaning |", "|---|---|---|"]
        for name, attribute in ATTRIBUTES.items():
            if attribute.of == of:
                unit = f", {attribute.unit}" if attribute.unit else ""
                parts.append(f"| `{name}` | {attribute.type}{unit} | {_cell(attribute.doc)} |")
        parts.append("")
    return "\n".join(parts)


_OF = {
    Of.FIXED: "Of a worker, fixed for its life",
    Of.LIVE: "Of a worker, changing while it runs",
    Of.JOB: "Of a job, the same for all its tasks",
    Of.TASK: "Of a single task (only in `--rank`: `--where` is asked once per job)",
    Of.PAIR: "Of a task and a worker together (only in `--rank`)",
}


def _kind(kind: Kind) -> str:
    enum = kind.schema().get("enum")
    return " or ".join(f"`{word}`" for word in enum) if isinstance(enum, list) else kind.wanted


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def schema(name: str) -> str:
    made: Schema = SCHEMAS[name]()
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


PAGES = {
    "attributes.md": attributes,
    "cli.md": cli,
    "http.md": http,
    "job-files.md": job_files,
    "states.md": states,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page())
    SHIPPED.mkdir(exist_ok=True)
    for name in SCHEMAS:
        (SHIPPED / f"{name}.schema.json").write_text(schema(name))
