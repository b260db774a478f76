"""Testers say whether what blocked tasks wait for is there again.

    contract      what every tester does
    registry      all of them, and the one door to them: in time, whatever they do
    conformance   what an author checks a tester of theirs with

    tcp · http · ssh · databases · files · storage · commands · times
                  those that are built in; addresses, mounts, threads and running are what they are made of

    lanes, gates  so many at a time, and those that hang keep no others waiting
    entry_points  where those of third parties are named
    hosting, judging  a third party's is asked in a process of its own: this side of it
    host, host_words  ... the other side, and how they talk
    verdicts      answers made fit to be kept and shown
    last_words    the end of what a program says

A tester knows nothing of tasks, jobs or managers. It is asked in whichever process its condition's place says.
"""
