"""Which scheme a URL is of. Third parties' are entry points of the group `tercel.schemes`, named as what stands before the colon."""

import inspect
from importlib.metadata import entry_points
from typing import Any

from tercel.core.files import Trouble
from tercel.data.contract import Scheme, TransferFailed
from tercel.data.http import HttpScheme, KeptScheme
from tercel.data.local import LocalScheme
from tercel.data.outside import OutsideScheme
from tercel.data.sftp import SftpScheme
from tercel.data.urls import note_of, parse, shown

GROUP = "tercel.schemes"


class Schemes:
    """Of one process: what each has learnt and keeps open is shared by all its transfers."""

    def __init__(self) -> None:
        web, self._sftp = HttpScheme(), SftpScheme()
        self._known: dict[str, Scheme] = {
            "file": LocalScheme(),
            "http": web,
            "https": web,
            "sftp": self._sftp,
            "ssh": self._sftp,
        }

    def of(self, url: str, manager: tuple[str, str] = ("", "")) -> Scheme:
        """`manager`: where content is kept, and the token for it. TransferFailed if there is none for it."""
        name = parse(url).scheme
        if name == "tercel":
            return KeptScheme(*manager)
        if name not in self._known:
            self._known[name] = _third_partys(name, url) or OutsideScheme(name)
        return self._known[name]

    def close(self) -> None:
        """What is kept open for the next transfer is closed."""
        self._sftp.close()


def _third_partys(name: str, url: str) -> Scheme | None:
    for point in entry_points(group=GROUP, name=name):
        try:
            found: Any = point.load()
            made: Any = found() if inspect.isclass(found) or inspect.isfunction(found) else found
        except Exception as error:  # whatever an import may do
            note = f"{shown(url)}: its scheme ({point.value}) cannot be imported: {type(error).__name__}: {error}"
            raise TransferFailed(Trouble.REFUSED, shown(url), note_of(note)) from error
        scheme: Scheme = made
        return scheme
    return None
