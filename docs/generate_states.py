"""Writes docs/reference/states.md from the table in tercel.core.states; tests/core/test_states.py compares them."""

import ast
import inspect
from enum import StrEnum
from pathlib import Path

from tercel.core import states
from tercel.core.states import TRANSITIONS, TaskEvent, TaskState

PAGE = Path(__file__).parent / "reference" / "states.md"


def page() -> str:
    rows = [
        "# The states of a task",
        "",
        "Generated from `tercel.core.states` by `python docs/generate_states.py`: do not edit.",
        "",
        "```mermaid",
        states.drawing().rstrip(),
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
        moves = [(before, after) for (before, what), after in TRANSITIONS.items() if what == event]
        for at, (before, after) in enumerate(moves):
            name, text = (f"`{event}`", meaning) if at == 0 else ("", "")
            rows.append(f"| {name} | {text} | `{before}` | `{after}` |")
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


if __name__ == "__main__":
    PAGE.write_text(page())
