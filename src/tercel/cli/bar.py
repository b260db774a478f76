"""The progress bars on a terminal. Loaded only where one is shown: rich is the slowest import of all."""

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tercel.cli.words import ended, total
from tercel.wire.api import Counts


class Bar:
    """Drawn when told to, never by itself: the owner decides when the terminal is free."""

    def __init__(self) -> None:
        self._progress = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[others]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,  # hiding it leaves no trace
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=None, others="")
        self._shown = False

    def draw(self, counts: Counts, note: str = "") -> None:
        """`note`: what some wait for."""
        others = [f"{counts.running:,} running"]
        if moving := counts.staging_in + counts.staging_out:
            others.append(f"{moving:,} moving files")
        if counts.blocked:
            others.append(f"[magenta]{escape(note) or f'{counts.blocked:,} blocked'}[/magenta]")
        if counts.failed:
            others.append(f"[red]{counts.failed:,} failed[/red]")
        if counts.cancelled:
            others.append(f"[yellow]{counts.cancelled:,} cancelled[/yellow]")
        self._progress.update(
            self._task, completed=ended(counts), total=total(counts), others=", ".join(others)
        )
        if not self._shown:
            self._progress.start()
            self._shown = True
        self._progress.refresh()

    def hide(self) -> None:
        if self._shown:
            self._progress.stop()
            self._shown = False


class BytesBar:
    """How much of one file has gone through; likewise drawn when told to."""

    def __init__(self, total_bytes: int | None) -> None:
        self._progress = Progress(
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=total_bytes)
        self._shown = False

    def draw(self, passed_bytes: int) -> None:
        self._progress.update(self._task, completed=passed_bytes)
        if not self._shown:
            self._progress.start()
            self._shown = True
        self._progress.refresh()

    def hide(self) -> None:
        if self._shown:
            self._progress.stop()
            self._shown = False
