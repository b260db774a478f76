"""Snapshots: jobs with all that is known of them, in one file that any store can write and any store can take.

    records    what is in a file, in the words of core: nothing of any store's tables
    files      blocks with checksums, and how a file comes to be: whole, or not at all
    saving     a store -> records -> a file
    checking   a file -> what it contains, if every record of it is right
    replaying  records of a job as it stood at a moment
    filing     files of the catalogue, there and back
    judging    what must be true of single records
    placing    records under the numbers that a manager gave them

A file is checked from its first byte to its last before anything of it is put into a store.
"""
