"""What travels between processes: versioned values and their codecs. No I/O here.

messages   between manager and worker (msgpack, in numbered frames)
session    numbers frames and notices what got lost
api        between client and manager (JSON over HTTP)
"""
