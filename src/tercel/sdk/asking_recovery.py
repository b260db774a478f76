"""What is asked about conditions that blocked tasks wait for (3 for C3), and about what is turned off."""

from tercel.sdk.answers import Query
from tercel.sdk.connection import Connection
from tercel.wire import api


class AsksRecovery(Connection):
    async def conditions(
        self, *, before: int | None = None, limit: int = 100, all: bool = False
    ) -> api.ConditionList:
        """What blocked tasks wait for, newest first; with `all`, also what none waits for any more."""
        query: Query = {"before": before, "limit": limit, "all": all or None}
        return await self._ask("GET", "/conditions", api.ConditionList, query)

    async def condition(self, id: int) -> api.ConditionView:
        return await self._ask("GET", f"/conditions/{id}", api.ConditionView)

    async def test_condition(self, id: int) -> api.Counted:
        """Test it now. The count is 0 if nobody is connected who could; then it is tested as soon as somebody is."""
        return await self._ask("POST", f"/conditions/{id}/test", api.Counted)

    async def release_condition(self, id: int, *, count: int = 0) -> api.Counted:
        """Let so many tasks go (0: all) without a test. The count is of those that went."""
        release = api.ConditionRelease(count=count)
        # Not repeatable: a second time would let as many go again.
        return await self._ask(
            "POST", f"/conditions/{id}/release", api.Counted, body=release, repeatable=False
        )

    async def fail_condition(self, id: int, *, why: str = "") -> api.Counted:
        """Give it up: its tasks fail. The count is of those."""
        failure = api.ConditionFailure(why=why)
        return await self._ask("POST", f"/conditions/{id}/fail", api.Counted, body=failure, repeatable=False)

    async def pause_condition(self, id: int) -> api.Counted:
        """Neither test it nor give it up until it is resumed. The count is 0 if it was paused before."""
        return await self._ask("POST", f"/conditions/{id}/pause", api.Counted)

    async def resume_condition(self, id: int) -> api.Counted:
        """Test it again, and at once. The count is 0 if it was not paused."""
        return await self._ask("POST", f"/conditions/{id}/resume", api.Counted)

    async def switches(self) -> api.SwitchList:
        """Systems and applications that are off."""
        return await self._ask("GET", "/switches", api.SwitchList)

    async def switch_off(self, name: str, *, why: str = "") -> api.Counted:
        """`app=matlab` or `system=hpc1`: what asks whether it is enabled waits from its next test on.

        The count is 0 if it was off and no reason is given: the one that it has stays.
        """
        change = api.SwitchChange(name=name, off=True, why=why)
        return await self._ask("POST", "/switches", api.Counted, body=change)

    async def switch_on(self, name: str) -> api.Counted:
        """The count is 0 if it was on."""
        return await self._ask("POST", "/switches", api.Counted, body=api.SwitchChange(name=name, off=False))
