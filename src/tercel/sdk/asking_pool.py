"""What is asked about the pool, the manager, its queues and its tokens."""

from collections.abc import Sequence
from urllib.parse import quote

from tercel.core.model import Role
from tercel.sdk.answers import Query, target
from tercel.sdk.connection import Connection
from tercel.wire import api
from tercel.wire.api_looking import DirectoryView, FileTail, SandboxView


class AsksPool(Connection):
    async def status(self) -> api.Status:
        return await self._ask("GET", "/status", api.Status)

    async def pool(self) -> api.Pool:
        return await self._ask("GET", "/pool", api.Pool)

    async def drain(self, worker: str) -> api.Counted:
        """Let a worker finish what it runs, and leave."""
        return await self._ask("POST", f"/workers/{quote(worker, safe='')}/drain", api.Counted)

    async def quarantine(self, worker: str, reason: str = "") -> api.Counted:
        """Give a worker no more tasks until it is released. What it runs goes on."""
        path = f"/workers/{quote(worker, safe='')}/quarantine"
        return await self._ask("POST", path, api.Counted, body=api.Quarantine(reason=reason))

    async def end_quarantine(self, worker: str) -> api.Counted:
        """It takes tasks again. The count is 0 if it was in no quarantine."""
        return await self._ask("POST", f"/workers/{quote(worker, safe='')}/release", api.Counted)

    async def tag(self, worker: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> api.Tags:
        """Add tags to a worker, or take some from it, also such as it says itself. Kept over its restarts."""
        change = api.TagChange(add=list(add), remove=list(remove))
        return await self._ask("POST", f"/workers/{quote(worker, safe='')}/tags", api.Tags, body=change)

    async def worker_directory(self, worker: str) -> DirectoryView:
        """What is in a worker's directory, and what of that is worth a look."""
        return await self._ask("GET", f"/workers/{quote(worker, safe='')}/directory", DirectoryView)

    async def worker_log(self, worker: str) -> FileTail:
        """The end of the file that a worker logs into."""
        return await self._ask("GET", f"/workers/{quote(worker, safe='')}/log", FileTail)

    async def sandbox_files(
        self, worker: str, job: int, task: int, *, attempt: int | None = None
    ) -> SandboxView:
        """The files of a task that runs at a worker, or whose sandbox was kept there."""
        path = f"/workers/{quote(worker, safe='')}/jobs/{job}/tasks/{task}/files"
        return await self._ask("GET", path, SandboxView, {"attempt": attempt})

    async def sandbox_file(
        self, worker: str, job: int, task: int, path: str, *, attempt: int | None = None
    ) -> FileTail:
        """The end of one of them."""
        asked: Query = {"path": path, "attempt": attempt}
        where = f"/workers/{quote(worker, safe='')}/jobs/{job}/tasks/{task}/file"
        return await self._ask("GET", where, FileTail, asked)

    async def reservations(self) -> api.ReservationList:
        return await self._ask("GET", "/reservations", api.ReservationList)

    async def reserve(self, new: api.NewReservation) -> api.ReservationView:
        """Set workers aside for a queue or a user, for a time."""
        return await self._ask("POST", "/reservations", api.ReservationView, body=new, repeatable=False)

    async def end_reservation(self, id: int) -> api.Counted:
        return await self._ask("DELETE", f"/reservations/{id}", api.Counted)

    async def health(self) -> api.Health:
        return await self._ask("GET", "/health", api.Health)

    async def openapi(self) -> dict[str, object]:
        """The description of the manager's API."""
        return await self._ask("GET", "/openapi.json", dict[str, object])

    # -- queues -------------------------------------------------------------------------------------------

    async def queues(self) -> api.QueueList:
        return await self._ask("GET", "/queues", api.QueueList)

    async def set_queue(self, name: str, settings: api.QueueSettings) -> api.QueueView:
        """Make a queue, or change it."""
        return await self._ask("PUT", f"/queues/{quote(name, safe='')}", api.QueueView, body=settings)

    async def remove_queue(self, name: str) -> api.Counted:
        """Possible while nothing unfinished is in it."""
        return await self._ask("DELETE", f"/queues/{quote(name, safe='')}", api.Counted)

    # -- tokens -------------------------------------------------------------------------------------------

    async def tokens(self) -> api.TokenList:
        return await self._ask("GET", "/tokens", api.TokenList)

    async def create_token(self, role: Role, user: str, *, note: str = "") -> api.IssuedToken:
        """Make a token; its secret is in the answer and nowhere else."""
        new = api.NewToken(role=role, user=user, note=note)
        return await self._ask("POST", "/tokens", api.IssuedToken, body=new, repeatable=False)

    async def revoke_token(self, token: str) -> None:
        """From now on the token of this id is of no use."""
        await self._fetch("DELETE", target(f"/tokens/{quote(token, safe='')}", {}))
