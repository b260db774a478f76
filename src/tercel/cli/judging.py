"""Whether a manager would take the testers of rules for blocking: judged as it judges them, without asking any.

A manager elsewhere may have testers of packages that are not installed here: these are its own to judge.
"""

from collections.abc import Sequence

from tercel.cli.screen import Screen
from tercel.cli.sharing import named_server
from tercel.core.conditions import Place
from tercel.core.errors import UsageError
from tercel.core.model import Role
from tercel.manager.access import Identity
from tercel.manager.blocking import Rules, settled
from tercel.sdk.files import Draft
from tercel.testers.late import LateTesters

_ANYBODY = Identity("", Role.ADMIN, "")
"""Who hands it in only the manager knows."""


async def judge_testers(screen: Screen, drafts: Sequence[Draft]) -> None:
    """Raises UsageError, in the words of the manager."""
    judges = _Judges(screen)
    judged: set[Rules] = set()
    try:
        for number, draft in enumerate(drafts):
            rules = draft.submission.block_on
            if not rules or rules in judged:
                continue
            judged.add(rules)
            try:
                await settled(judges, _ANYBODY, rules)
            except UsageError as error:
                if not draft.step:
                    raise
                text = f"job {draft.submission.name or draft.step!r} of the flow: {error}"
                raise UsageError(text, f"jobs[{number}].block_on") from None
    finally:
        await judges.close()


class _Judges(LateTesters):
    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    async def judge(self, text: str) -> tuple[str, Place]:
        kind, colon, _ = text.strip().partition(":")
        if colon and named_server(self._screen) and not self.is_own(kind):
            self._screen.note(
                f"{kind[:40]!r} is no tester of Tercel's own: whether it works, the manager says"
            )
            return text, Place.SITE  # where does not matter: nothing is tested
        return await super().judge(text)
