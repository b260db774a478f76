"""Moving bytes: files are fetched, checked, kept near, delivered. One adapter per kind of storage, one cache per node.

What lives here: the schemes (how bytes of a URL are read, written, removed), transfers (checked, resumable, bounded), the mover (a
process of its own, so that a library that hangs or leaks harms no worker), the cache. What may not: which task needs what, and
what becomes of it if it cannot be had; that is the worker's and the core's.
"""
