"""What --dry-run prints: the jobs that would be submitted."""

from collections.abc import Awaitable, Callable, Sequence

from tercel.cli.lazy import late
from tercel.cli.placing import data_facts, needs_of, placing_facts
from tercel.cli.preview import first_commands
from tercel.cli.screen import Screen
from tercel.cli.uploading import to_upload
from tercel.cli.words import Cell, count, duration, needs, pairs, short, table
from tercel.core.scripts import typed
from tercel.sdk.files import Draft
from tercel.wire.api import Submission

MOST_STEPS = 50
WIDTH = 60


async def show_drafts(screen: Screen, drafts: Sequence[Draft]) -> None:
    """Raises UsageError for a tester that no manager would take, and for files that are not there."""
    if any(draft.submission.block_on for draft in drafts):
        judge: Callable[[Screen, Sequence[Draft]], Awaitable[None]]
        judge = late("tercel.cli.judging", "judge_testers")
        await judge(screen, drafts)
    uploads = await to_upload(draft.submission for draft in drafts)
    if drafts[0].step:
        _show_flow(screen, drafts)
        if uploads:
            screen.tell(f"{uploads} would be uploaded first")
    else:
        _show_draft(screen, drafts[0], uploads)


def _show_draft(screen: Screen, draft: Draft, uploads: str) -> None:
    job = draft.submission
    first = first_commands(draft)
    commands = [command for _, command in first]
    screen.emit({"dry_run": True, "tasks": draft.tasks, "count": draft.tasks, "first": commands, "job": job})
    facts = [
        ("tasks", f"{draft.tasks:,}" + (f" ({job.array})" if job.array else "")),
        ("points", str(job.grid or "")),
        ("command", _command(draft, 100)),
        ("name", job.name),
        ("needs", needs_of(job)),
        ("time limit", duration(job.time_limit_s) if job.time_limit_s else ""),
        *placing_facts(job),
        *data_facts(job),
        ("upload", uploads),
        ("queue", job.queue),
        ("retries", _retries(job)),
        ("after", short(needs(job.after), 400)),
        ("held", "until it is released" if job.hold else ""),
        ("directory", job.cwd or "an empty one of its own"),
        ("variables", ", ".join(job.env)),
    ]
    screen.tell(["Nothing is submitted. This would be:", *pairs(facts)])
    if job.template:
        screen.tell(["", *table(("TASK", "COMMAND"), ((task, short(text, 200)) for task, text in first))])
        if draft.tasks > len(first):
            screen.tell(f"... and {draft.tasks - len(first):,} more")


def _retries(job: Submission) -> str:
    general = [str(job.retries)] if job.retries else []
    rules = [f"{rule.retries} after {', '.join(map(str, rule.codes))}" for rule in job.retry_rules]
    limit = [f"at most {job.max_fails} failures"] if job.max_fails else []
    return "; ".join([*general, *rules, *limit])


def _show_flow(screen: Screen, drafts: Sequence[Draft]) -> None:
    tasks = sum(draft.tasks for draft in drafts)
    if screen.json:
        screen.emit({"dry_run": True, "tasks": tasks, "steps": [_step(drafts, draft) for draft in drafts]})
        return
    rows: list[list[Cell]] = [
        [draft.step, draft.tasks, _needs(drafts, draft), _command(draft, WIDTH)]
        for draft in drafts[:MOST_STEPS]
    ]
    screen.tell(
        [
            f"Nothing is submitted. This would be {count(len(drafts), 'job')} with {count(tasks, 'task')}:",
            *table(["step", "tasks", "needs", "command"], rows),
            *([f"and {count(len(drafts) - MOST_STEPS, 'step')} more"] if len(drafts) > MOST_STEPS else []),
        ]
    )


def _step(drafts: Sequence[Draft], draft: Draft) -> dict[str, object]:
    return {
        "step": draft.step,
        "tasks": draft.tasks,
        "needs": [{"step": drafts[at].step, "tasks": which} for at, which in draft.needs],
        "job": draft.submission,
    }


def _needs(drafts: Sequence[Draft], draft: Draft) -> str:
    names = [drafts[at].step + (" (task by task)" if which == "same" else "") for at, which in draft.needs]
    return short(", ".join(names), WIDTH)


def _command(draft: Draft, width: int) -> str:
    job = draft.submission
    lines = job.lines or []
    text = " ".join(typed(job.argv)) or job.line or (lines[0] if lines else str(job.function))
    more = f" (and {count(len(lines) - 1, 'line')} more)" if len(lines) > 1 else ""
    return short(text, width) + more
