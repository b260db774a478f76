"""Stores keep the durable truth: one transaction for queue, leases, outcomes, outputs and tokens.

    contract   what every store does, in domain verbs
    memory     for tests and simulation
    sqlite     the embedded default: one file, WAL, full durability
    snapshot   jobs in a file that any store can write and any store can take

A store knows nothing of scheduling; it applies changes and answers questions. No SQL outside its own package.
"""
