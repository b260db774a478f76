"""tercel blocked: a group whose default is the list"""

import click

from tercel.cli.lazy import Entry, LazyGroup

_HERE = "tercel.cli.commands"


@click.group(
    cls=LazyGroup,
    entries=(
        Entry("list", f"{_HERE}.blocked_list", "What blocked tasks wait for (the default)."),
        Entry("test", f"{_HERE}.blocked_test", "Test conditions now."),
        Entry("release", f"{_HERE}.blocked_release", "Let tasks go without a test."),
        Entry("fail", f"{_HERE}.blocked_fail", "Give conditions up: their tasks fail."),
        Entry("pause", f"{_HERE}.blocked_pause", "Neither test conditions nor give them up for now."),
        Entry("resume", f"{_HERE}.blocked_resume", "Test paused conditions again."),
    ),
    default="list",
    takes_anything=True,
)
def command() -> None:
    """What blocked tasks wait for. Each condition is tested for all of them, and they go on when it has cleared.

    \b
    tercel blocked                    one row per condition
    tercel blocked C3                 all about one
    tercel blocked release C3 --count 5
    """
