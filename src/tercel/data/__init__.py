"""Moving bytes: files are fetched, checked, kept near, delivered. One adapter per kind of storage, one cache per node.

    contract                 what is asked, what comes back; what each scheme does
    moving, mover            the worker's side of the mover, and its process: a library that hangs or leaks harms no worker
    mover_words              how they talk
    fetching, pieces, parts  a file is brought: resumed, in several parts at once, durable before it gets its name
    delivering               a file is put somewhere, read back, renamed; removed; looked at
    digests                  what its bytes are
    schemes                  which is whose: local, http (http_client), sftp (sftp_words), outside (fsspec)
    urls                     taken apart, and shown without secrets
    faults                   what went wrong, by one table
    watches                  how far a transfer is, whether it gets on, how it is ended

What may not live here: which task needs what, and what becomes of it if it cannot be had; that is the worker's and the core's.
"""
