"""Files of the catalogue in snapshots: what a job's tasks made, and what was uploaded for it.

Only what is known of them, not their bytes. A replica that is bad is not worth carrying; when the others were checked is told
anew by whoever reads them. Which attempt made a file is not kept: attempts have other numbers where it is restored.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

from tercel.core.changes import FileRegistered
from tercel.core.filenames import is_place, is_registered_name, names_read, upload_of, uploads_of
from tercel.core.files import UPLOADED, FileRow, is_digest
from tercel.core.intervals import IntervalSet, Range
from tercel.core.model import JobRow
from tercel.stores.contract import Catalogued
from tercel.stores.snapshot.contract import ROWS
from tercel.stores.snapshot.judging import must
from tercel.stores.snapshot.records import FilePartRow, FilesPart

_ALL: tuple[Range, ...] = ((0, 2**62),)


class Catalogue(Protocol):
    """One committed state of it."""

    def named(self, names: Sequence[str]) -> list[Catalogued]: ...

    def from_name(self, *, prefix: str, pattern: str, after: str, limit: int) -> list[FileRow]: ...

    def made_by(
        self, job: int, ranges: Sequence[Range], after: tuple[int, str], limit: int
    ) -> list[FileRow]: ...


def file_parts(catalogue: Catalogue, job: JobRow) -> Iterator[FilesPart]:
    behind = (-1, "")
    while made := catalogue.made_by(job.id, _ALL, behind, ROWS):
        behind = (made[-1].task, made[-1].name)
        yield FilesPart(
            job.id, [_row(one, one.file.task) for one in catalogue.named([row.name for row in made])]
        )
    for upload in sorted(uploads_of(names_read(job.spec))):
        after = ""
        while page := catalogue.from_name(prefix=upload, pattern="", after=after, limit=ROWS):
            after = page[-1].name
            yield FilesPart(job.id, [_row(one, None) for one in catalogue.named([row.name for row in page])])


def _row(found: Catalogued, task: int | None) -> FilePartRow:
    file = found.file
    urls = tuple(replica.url for replica in found.replicas if not replica.bad)
    return file.name, file.size_bytes, file.digest, file.made_at, task, urls


def check_files(part: FilesPart, job: JobRow, tasks: IntervalSet) -> None:
    uploads = uploads_of(names_read(job.spec))
    for name, _, digest, _, task, urls in part.rows:
        must(is_registered_name(name), "a file has a name that cannot be")
        must(is_digest(digest), f"{name[:80]} has no digest")
        must(all(map(is_place, urls)), f"a replica of {name[:80]} is nowhere")
        if task is None:
            must(upload_of(name) in uploads, f"{name[:80]} was not uploaded for it")
        else:
            must(task in tasks and not name.startswith(UPLOADED), f"no task of it can have made {name[:80]}")


def placed_files(part: FilesPart, job: int, owner: str) -> list[FileRegistered]:
    """As the owner's of the job, under its number here."""
    return [
        FileRegistered(
            FileRow(
                name=name,
                size_bytes=size_bytes,
                digest=digest,
                owner=owner,
                made_at=made_at,
                job=0 if task is None else job,
                task=task or 0,
            ),
            urls,
        )
        for name, size_bytes, digest, made_at, task, urls in part.rows
    ]
