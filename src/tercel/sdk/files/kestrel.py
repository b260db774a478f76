"""Kestrel's job files: an INI file whose [job] names a command and how many tasks run it.

    [job]
    queue = 50000
    command = /runtask.sh
    cleanup = /wipe.sh
    requires = Python2.6 SleekXMPP

The command is a line for the shell that gets the task's number as its last argument (K15). A worker must have all that
is required (K4), and runs the cleanup after each task (K12).
"""

import re
from typing import NamedTuple

from tercel.core.errors import UsageError
from tercel.core.model import MAX_TASKS
from tercel.sdk.files.drafts import Draft, lay_over, make_draft
from tercel.sdk.files.kinds import unknown
from tercel.sdk.files.sources import Given, LineSource, Words

_SECTION = re.compile(r"\[([^\]]+)\]\s*")
_OPTION = re.compile(r"([^\s:=][^:=]*?)\s*[:=]\s*(.*)")
_TAGS = re.compile(r"[^\s,]+")
_KNOWN = ("command", "queue", "cleanup", "requires")


class Entry(NamedTuple):
    line: int
    value: str


def is_kestrel(text: str) -> bool:
    """Whether the first thing in a text is the header of a section, and one of them is [job]."""
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;"]
    return (
        bool(lines)
        and _SECTION.fullmatch(lines[0]) is not None
        and any(
            match is not None and match[1].strip().lower() == "job"
            for match in map(_SECTION.fullmatch, lines)
        )
    )


def read_kestrel(file: str, text: str, above: Words) -> Draft:
    """Raises UsageError; `above` counts more than what the file says."""
    entries = _job_section(file, text)
    for name, entry in entries.items():
        source = LineSource(file, entry.line)
        if name not in _KNOWN:
            raise source.wrong((), unknown((), "key", name, _KNOWN).text)
    first = LineSource(file, 1)
    if not entries.get("command", Entry(1, "")).value:
        raise first.wrong((), "[job] has no command")
    words: Words = {}
    command = entries["command"]
    words["command"] = Given(command.value, LineSource(file, command.line), ("command",))
    words["task_id_argument"] = Given(True, first, ())
    if "queue" in entries:
        words["array"] = _array(file, entries["queue"])
    for name in ("cleanup", "requires"):
        if name in entries and entries[name].value:
            line, text = entries[name]
            value = _TAGS.findall(text) if name == "requires" else text
            words[name] = Given(value, LineSource(file, line), (name,))
    return make_draft(lay_over(words, above), first)


def _array(file: str, queue: Entry) -> Given:
    source = LineSource(file, queue.line)
    if not re.fullmatch("[0-9]{1,12}", queue.value) or not 0 < int(queue.value) <= MAX_TASKS:
        raise source.wrong(("queue",), f"{queue.value!r} is not a number of tasks from 1 to {MAX_TASKS:,}")
    return Given(f"0-{int(queue.value) - 1}", source, ("queue",))


def _job_section(file: str, text: str) -> dict[str, Entry]:
    """As Python's configparser reads it, which Kestrel used; but with the lines' numbers."""
    found: dict[str, Entry] = {}
    section = last = ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if raw[0].isspace() and last:  # it goes on with the value above
            if section == "job":
                found[last] = found[last]._replace(value=f"{found[last].value}\n{line}".strip())
        elif match := _SECTION.fullmatch(line):
            section, last = match[1].strip().lower(), ""
        elif (match := _OPTION.fullmatch(line)) and section:
            last = match[1].lower()
            if section == "job":
                if last in found:
                    raise UsageError(
                        f"{file}:{number}: {last}: it stands in line {found[last].line} already", last
                    )
                found[last] = Entry(number, match[2].strip())
        else:
            raise UsageError(f"{file}:{number}: {line[:80]!r} is not NAME = VALUE")
    return found
