"""Everything in dictionaries: for tests and simulation, and the reference for the other stores.

store   the contract
tasks   what is known of one job's tasks
"""

from tercel.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
