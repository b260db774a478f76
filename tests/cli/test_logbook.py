"""The log of a service waits for nobody."""

import logging
import os
import subprocess
import sys
from pathlib import Path

from tercel.cli.logbook import WAITING_MOST, Logbook, descriptor

LINES = 2 * WAITING_MOST
"""Of a hundred bytes: far more than a pipe and the logbook hold."""


def test_lines_that_nobody_reads_are_lost_and_counted_and_keep_nobody_waiting() -> None:
    reading, writing = os.pipe()
    book = Logbook(descriptor(writing))
    log = logging.Logger("a service")
    log.addHandler(book)
    for number in range(LINES):
        log.warning("line %090d", number)
    with open(reading) as pipe:
        written, lost = 1, 0
        assert int(pipe.readline().split()[1]) == 0
        for line in pipe:
            if line.startswith("line"):
                written += 1
            else:
                lost += int(line.split()[2].replace(",", ""))
            if written + lost == LINES:
                break
        assert lost > 0
        log.warning("and on")
        assert any(line == "and on\n" for line in pipe)
    os.close(writing)


def test_a_process_whose_log_nobody_reads_comes_to_its_end() -> None:
    program = (
        "import logging; from tercel.cli.logbook import log_to_stderr; log_to_stderr(logging.INFO)\n"
        f"for n in range({LINES}): logging.info('line %090d', n)\n"
        "print('done')"
    )
    source = str(Path(__file__).parents[2] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as process:
        assert process.wait(30) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"done\n"
