"""Files of jobs that come with a past: what can be registered here, and what is told of the rest.

Only what was known of them is in a snapshot, not their bytes: those that the manager kept where the snapshot was made are here if
it is the same manager, or has the same content from elsewhere.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from tercel.core.changes import FileRegistered
from tercel.core.files import KEPT, FileRow
from tercel.manager.service import Manager

ASKED_AT_ONCE = 1000
TOLD_MOST = 5
"""Names that are told of each kind."""


class Filing:
    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.notes: list[str] = []
        """What is not as it was."""

    async def registered(self, files: Sequence[FileRegistered]) -> list[FileRegistered]:
        if not files:
            return []
        reachable = await asyncio.to_thread(lambda: [self._reachable(change) for change in files])
        taken: dict[str, FileRow] = {}
        for at in range(0, len(reachable), ASKED_AT_ONCE):
            some = [change.file for change in reachable[at : at + ASKED_AT_ONCE]]
            taken |= self._manager.catalogue.taken((file.name, file.digest) for file in some)
            await asyncio.sleep(0)  # others have their turn
        free = [change for change in reachable if change.file.name not in taken]
        self._tell(
            sorted(taken), "are here with other bytes, which stay: what the snapshot says of them is left out"
        )
        nowhere = [
            now.file.name for was, now in zip(files, reachable, strict=True) if was.urls and not now.urls
        ]
        self._tell(nowhere, "were kept by the manager where the snapshot was made: their bytes are not here")
        return free

    def _reachable(self, change: FileRegistered) -> FileRegistered:
        """Without the places that are not here."""
        vault = self._manager.vault
        urls = [url for url in change.urls if not url.startswith(KEPT) or vault.holds(url.removeprefix(KEPT))]
        return msgspec.structs.replace(change, urls=tuple(urls))

    def _tell(self, names: Sequence[str], what: str) -> None:
        if names:
            some = ", ".join(names[:TOLD_MOST]) + (" …" if len(names) > TOLD_MOST else "")
            self.notes.append(f"{len(names):,} files {what} ({some})")
