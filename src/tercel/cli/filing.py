"""Files of the catalogue as people read them."""

from tercel.cli.asking import clock
from tercel.cli.words import Cell, plain, size
from tercel.core.selectors import task_name
from tercel.wire.api_files import FileEntry

HEADERS = ("NAME", "SIZE", "OWNER", "SINCE", "MADE BY")
PAGE = 1000


def file_row(file: FileEntry) -> list[Cell]:
    made_by = task_name(file.job, file.task) if file.job else ""
    return [plain(file.name), size(file.size_bytes), file.owner, clock(file.made_at), made_by]
