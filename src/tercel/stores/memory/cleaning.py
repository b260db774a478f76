"""Removing what is old: all at once, however little is asked for."""

from collections.abc import Collection, Iterable, Sequence

from tercel.core.changes import Noted
from tercel.core.filenames import names_read, upload_of, uploads_of
from tercel.core.files import UPLOADED, is_name
from tercel.core.model import JobRow
from tercel.stores.contract import LEFT_OUT, Cleaned, Compacted, Old, needed_by, values_named
from tercel.stores.memory.books import Books
from tercel.stores.memory.tasks import Tasks


def removable(books: Books, ended_before: float, owner: str | None) -> list[int]:
    old = [
        (row.ended_at, row.id)
        for row in books.jobs.values()
        if _is_removable(books, row.id, ended_before) and (owner is None or row.owner == owner)
    ]
    return [job for _, job in sorted(old)]


def _is_removable(books: Books, job: int, ended_before: float) -> bool:
    ended_at = books.jobs[job].ended_at if job in books.jobs else None
    if ended_at is None or ended_at >= ended_before:
        return False
    leased = {lease.job for lease in books.leases.values()}
    return job not in leased and not any(job in needed_by(books.live(row)) for row in books.jobs.values())


def remove(books: Books, jobs: Sequence[int], ended_before: float) -> list[int]:
    removed: list[int] = []
    for job in jobs:
        if _is_removable(books, job, ended_before):
            books.next_job = max(books.next_job, job + 1)
            books.leaving[job] = books.jobs.pop(job)
            removed.append(job)
    return removed


def clean(books: Books, before: float, keep_values: Collection[str], unnamed_before: float) -> Cleaned:
    cleaned = Cleaned()
    # Whoever was told a short time ago that one is there has still to name it.
    young = {key for key, since in books.unnamed.items() if since >= int(unnamed_before)}
    stay = young | {*keep_values}
    while books.leaving:
        _, row = books.leaving.popitem()
        cleaned += _empty(books, row, stay)
    old = books.unnamed.keys() - stay
    for key in old:
        del books.unnamed[key]
    unread = _drop_unread(books, unnamed_before)
    return cleaned + Cleaned(values=_drop_values(books, old, stay), files=unread) + _forget_old(books, before)


def _empty(books: Books, row: JobRow, stay: set[str]) -> Cleaned:
    """Forget what a removed job has left behind."""
    tasks = books.tasks.pop(row.id, Tasks())
    segments = _drop_output(books, tasks.attempts())
    books.lines.pop(row.id, None)
    books.edges.pop(row.id, None)
    values = _drop_values(books, values_named(row, books.calls.pop(row.id, ())), stay)
    files = _drop_files(books, row)
    return Cleaned(tasks.record_count(), segments, values, notes=len(tasks.notes), files=files)


def _drop_files(books: Books, row: JobRow) -> int:
    """What it had made that has no name, and what was uploaded for it alone."""
    catalogue = books.catalogue
    catalogue.left = {one for one in catalogue.left if one[0] != row.id}
    unread = uploads_of(names_read(row.spec)) - _uploads_read(books)
    gone = [
        name
        for name, file in catalogue.files.items()
        if (file.job == row.id and not is_name(name)) or upload_of(name) in unread
    ]
    for name in gone:
        catalogue.remove(name)
    return len(gone)


def _drop_unread(books: Books, before: float) -> int:
    """Uploads for jobs that never came."""
    read = _uploads_read(books)
    files = books.catalogue.files.values()
    gone = [
        file.name
        for file in files
        if file.name.startswith(UPLOADED) and file.made_at < before and upload_of(file.name) not in read
    ]
    for name in gone:
        books.catalogue.remove(name)
    return len(gone)


def _uploads_read(books: Books) -> set[str]:
    rows = [*books.jobs.values(), *books.leaving.values()]
    return {upload for row in rows for upload in uploads_of(names_read(row.spec))}


def _drop_values(books: Books, keys: set[str], stay: set[str]) -> int:
    """Those of them that no job refers to."""
    unused = keys - _named(books) - stay
    return sum(len(books.values.pop(key, {})) for key in unused)


def unnamed(books: Books) -> list[str]:
    return sorted(books.values.keys() - _named(books) - books.unnamed.keys())


def _named(books: Books) -> set[str]:
    rows = [*books.jobs.values(), *books.leaving.values()]
    return {key for row in rows for key in values_named(row, books.calls.get(row.id, ()))}


def old(books: Books, before: float, keep: int, removed: Collection[int]) -> Old:
    notes = [
        note
        for job, tasks in books.tasks.items()
        for note in tasks.notes
        if job in removed or _is_old(note, before)
    ]
    attempts = [tasks.middle(keep, before) for job, tasks in books.tasks.items() if job not in removed]
    return Old(len(_closed(books, before)), len(notes), sum(map(len, attempts)))


def _is_old(note: Noted, before: float) -> bool:
    return note.at < before and note.what != LEFT_OUT


def _closed(books: Books, before: float) -> list[int]:
    return [
        id for id, row in books.conditions.items() if row.closed_at is not None and row.closed_at < before
    ]


def _forget_old(books: Books, before: float) -> Cleaned:
    closed = _closed(books, before)
    for id in closed:
        books.next_condition = max(books.next_condition, id + 1)
        del books.conditions[id]
    notes = 0
    for tasks in books.tasks.values():
        left = [note for note in tasks.notes if not _is_old(note, before)]
        notes += len(tasks.notes) - len(left)
        tasks.notes = left
    return Cleaned(conditions=len(closed), notes=notes)


def compact(books: Books, ended_before: float, keep: int) -> Compacted:
    gone = [tasks.compact(keep, ended_before) for tasks in books.tasks.values()]
    segments = sum(_drop_output(books, attempts) for attempts in gone)
    return Compacted(sum(map(len, gone)), segments, None)


def _drop_output(books: Books, attempts: Iterable[int]) -> int:
    places = [(attempt, stream) for attempt in attempts for stream in ("out", "err", "value")]
    return sum(len(books.segments.pop(place, {})) for place in places)
