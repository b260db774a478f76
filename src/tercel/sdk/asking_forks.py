"""What is asked about forks: jobs that are replayed from a moment, with some things changed."""

from collections.abc import Iterable, Mapping
from importlib import import_module

import msgspec

from tercel.sdk.answers import decode, target
from tercel.sdk.connection import Connection
from tercel.wire.api import Fork, ForkChange, Forked


class AsksForks(Connection):
    async def fork(
        self,
        select: Iterable[str],
        *,
        at: float | None = None,
        settings: Mapping[str, object] | None = None,
        only_affected: bool = False,
        name: str = "",
        queue: str = "",
        hold: bool = False,
        dry_run: bool = False,
    ) -> Forked:
        """Copy jobs (and the flows that they are of) as they stood at a moment: None is now, else seconds since 1970.

        What had finished by then keeps its results; all else runs. `settings`: keys of job files, {"command": "./fit2.sh",
        "mem": "4G", "env.SEED": "7"}; with several jobs, of one of them: {"fit:command": "./fit2.sh"}. What a changed
        command, directory or environment affects runs again with what needs it; with `only_affected` only tasks that
        would run something else than they did. The original jobs stay as they are. With `dry_run` nothing is done.
        """
        changes: list[ForkChange] = []
        if settings:
            # The keys of job files take a while to import, and every command line imports this module.
            changes = import_module("tercel.sdk.files.settings").changes_of(settings)
        fork = Fork(
            select=list(select),
            at=at,
            changes=changes,
            only_affected=only_affected,
            name=name,
            queue=queue,
            hold=hold,
            dry_run=dry_run,
        )
        data = msgspec.json.encode(fork)
        # However long it takes to copy millions of records; and never sent twice, which would copy them twice.
        answer = await self._upload(target("/fork", {}), len(data), [data])
        return decode(answer.body, Forked)
