"""Testers say whether what blocked tasks wait for is there again.

    contract   what every tester does

A tester knows nothing of tasks, jobs or managers. It is asked in whichever process its condition's place says.
"""
