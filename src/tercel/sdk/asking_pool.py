"""What is asked about the pool, the manager, its queues and its tokens."""

from urllib.parse import quote

from tercel.core.model import Role
from tercel.sdk.answers import target
from tercel.sdk.connection import Connection
from tercel.wire import api


class AsksPool(Connection):
    async def status(self) -> api.Status:
        return await self._ask("GET", "/status", api.Status)

    async def pool(self) -> api.Pool:
        return await self._ask("GET", "/pool", api.Pool)

    async def drain(self, worker: str) -> api.Counted:
        """Let a worker finish what it runs, and leave."""
        return await self._ask("POST", f"/workers/{quote(worker, safe='')}/drain", api.Counted)

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
