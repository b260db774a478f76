"""The routes about files of the catalogue, and about contents."""

from tercel.core.model import Role
from tercel.manager import handlers_files as handlers
from tercel.manager.handlers import MAX_PAGE
from tercel.manager.openapi import MAX_NUMBER, TASKS, Operation, Parameter
from tercel.manager.routing import ASKED, CHANGED, FOUND, MAX_REQUEST_BYTES, SENT, USERS, Route
from tercel.wire.api import Stored
from tercel.wire.api_files import Checked, FileList, FilesRemoved, FileStanding, NewFile

MAX_CONTENT_BYTES = 2**50
EVERYBODY = (Role.USER, Role.ADMIN, Role.WORKER)

_NAME = Parameter("name", summary="lfn:calib/2026", required=True)
_LIMIT = Parameter("limit", "integer", summary="page size", least=1, most=MAX_PAGE)
_AFTER = Parameter("after", summary="only names behind this")
_DIGEST = Parameter(
    "digest",
    where="path",
    summary="blake3: and 64 hex digits",
    pattern=r"^blake3:[0-9a-f]{64}$",
)

FILE_ROUTES: list[Route] = [
    (
        Operation(
            method="GET",
            path="/v1/files",
            roles=USERS,
            summary="Files of the catalogue, by name",
            parameters=(
                Parameter("prefix", summary="what their names begin with"),
                Parameter("pattern", summary="what their names match: lfn:calib/*.tar"),
                _AFTER,
                _LIMIT,
            ),
            answer=FileList,
            problems=ASKED,
        ),
        handlers.get_files,
    ),
    (
        Operation(
            method="POST",
            path="/v1/files",
            roles=USERS,
            summary="Register a file, or further places of one that is registered with the same digest",
            body=NewFile,
            most_bytes=MAX_REQUEST_BYTES,
            answer=FileStanding,
            status=201,
            again=True,
            problems=(*SENT, 409),
        ),
        handlers.post_file,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/files",
            roles=USERS,
            summary="Remove a file from the catalogue, or only one of its places",
            parameters=(_NAME, Parameter("url", summary="only this place")),
            answer=FilesRemoved,
            problems=(400, 401, 403, 404, 503, 507),
        ),
        handlers.delete_file,
    ),
    (
        Operation(
            method="GET",
            path="/v1/files/one",
            roles=USERS,
            summary="A file: where its bytes are, which task made it, which jobs read it",
            parameters=(_NAME,),
            answer=FileStanding,
            problems=FOUND,
        ),
        handlers.get_file,
    ),
    (
        Operation(
            method="POST",
            path="/v1/files/checked",
            roles=USERS,
            summary="Say what was found where a file's bytes should be",
            body=Checked,
            most_bytes=MAX_REQUEST_BYTES,
            answer=FileStanding,
            problems=CHANGED,
        ),
        handlers.post_checked,
    ),
    (
        Operation(
            method="GET",
            path="/v1/jobs/{job}/files",
            roles=USERS,
            summary="Files that tasks of a job made, by task and name",
            parameters=(
                Parameter("job", "integer", "path", "the job's id", least=0, most=MAX_NUMBER),
                Parameter("tasks", summary="0-9,12", pattern=TASKS),
                Parameter(
                    "after_task",
                    "integer",
                    summary="only of this task or later ones",
                    least=-1,
                    most=MAX_NUMBER,
                ),
                Parameter("after", summary="of that task, only names behind this"),
                _LIMIT,
            ),
            answer=FileList,
            problems=FOUND,
        ),
        handlers.get_job_files,
    ),
    (
        Operation(
            method="PUT",
            path="/v1/contents/{digest}",
            roles=EVERYBODY,
            summary="Upload what files may have as their bytes; it goes within hours if no file does",
            parameters=(_DIGEST,),
            raw=True,
            most_bytes=MAX_CONTENT_BYTES,
            answer=Stored,
            status=201,
            again=True,
            problems=SENT,
        ),
        handlers.put_content,
    ),
    (
        Operation(
            method="GET",
            path="/v1/contents/{digest}",
            roles=EVERYBODY,
            summary="Such bytes, all or (Range) some of them",
            parameters=(_DIGEST,),
            media="application/octet-stream",
            problems=(*FOUND, 416),
        ),
        handlers.get_content,
    ),
    (
        Operation(
            method="HEAD",
            path="/v1/contents/{digest}",
            roles=EVERYBODY,
            summary="Whether they are there; if so, they stay for an hour at least",
            parameters=(_DIGEST,),
            media="application/octet-stream",
            problems=FOUND,
        ),
        handlers.head_content,
    ),
]
