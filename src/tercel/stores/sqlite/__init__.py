"""The embedded default: one SQLite file, WAL, synchronous=FULL, so that a commit survives the loss of power.

    store         the contract, put together from the others
    schema        tables as they are now
    migrations    the way there from older files
    queries       every statement, named; no SQL stands elsewhere (cleaning, files and snapshots have lists of their own)
    connections   one writer, any number of readers, and who owns the file
    writing       a batch of changes -> few statements with many rows
    jobs          job rows
    chunks        what each task has of its own (lines, calls), many to a row
    values        uploaded values; and of many tasks at once what functions returned
    outcomes      how tasks ended: records, spans, history
    conditions    what tasks wait for, and which do
    files         the catalogue, and what tasks left where they had delivered it to
    notes         what befell tasks beside their attempts
    cleaning      removing what is old
    ranges        task numbers -> ranges
    faults        SQLite's errors -> ours, by blame

The writer is used by one thread at a time: the service's thread writes, another commits. A step of a statement
gives up the interpreter's lock, and in a busy process getting it back may take milliseconds; so rows are
written many to a statement, and long answers are read as one row.
"""

from tercel.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
