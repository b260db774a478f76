"""The routes about snapshots."""

from tercel.manager import handlers_snapshots as handlers
from tercel.manager.openapi import MAX_NUMBER, Operation, Parameter
from tercel.manager.routing import CHANGED, FOUND, USERS, Route, look
from tercel.wire.api_snapshots import Restoration, SnapshotList

MAX_SNAPSHOT_BYTES = 2**40

_NUMBER = Parameter("number", "integer", "path", "as in the list", least=0, most=MAX_NUMBER)
_AGAIN = Parameter("again", summary="also if it was restored here before", values=("true", "false"))

SNAPSHOT_ROUTES: list[Route] = [
    (
        Operation(
            method="GET",
            path="/v1/snapshot",
            roles=USERS,
            summary="Jobs with all that is known of them, as a file",
            parameters=(
                Parameter("select", summary="37, 1-5, last or all unfinished; none: all", many=True),
            ),
            media="application/octet-stream",
            problems=(*FOUND, 507),
        ),
        handlers.get_snapshot,
    ),
    (
        Operation(
            method="POST",
            path="/v1/restore",
            roles=USERS,
            summary="Restore such a file: its jobs go on here, under numbers that the answer tells",
            parameters=(_AGAIN,),
            raw=True,
            most_bytes=MAX_SNAPSHOT_BYTES,
            answer=Restoration,
            problems=CHANGED,
        ),
        handlers.post_restore,
    ),
    look(
        "/v1/snapshots",
        "Snapshots that the manager took by itself, newest first",
        SnapshotList,
        handlers.get_snapshots,
    ),
    (
        Operation(
            method="GET",
            path="/v1/snapshots/{number}",
            roles=USERS,
            summary="One of them, as a file",
            parameters=(_NUMBER,),
            media="application/octet-stream",
            problems=FOUND,
        ),
        handlers.get_own_snapshot,
    ),
    (
        Operation(
            method="POST",
            path="/v1/snapshots/{number}/restore",
            roles=USERS,
            summary="Restore one of them",
            parameters=(_NUMBER, _AGAIN),
            answer=Restoration,
            problems=CHANGED,
        ),
        handlers.post_own_restore,
    ),
]
