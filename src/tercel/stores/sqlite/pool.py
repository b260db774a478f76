"""What is kept of workers, and for whom they are reserved: a row each, as msgpack by field name."""

import sqlite3

import msgspec

from tercel.core.changes import ReservationRemoved, ReservationSet, WorkerSet
from tercel.core.presence import Reservation, WorkerRow
from tercel.stores.sqlite import queries

_encode = msgspec.msgpack.Encoder().encode
_decode_worker = msgspec.msgpack.Decoder(WorkerRow).decode
_decode_reservation = msgspec.msgpack.Decoder(Reservation).decode


def keep(connection: sqlite3.Connection, change: WorkerSet | ReservationSet | ReservationRemoved) -> None:
    match change:
        case WorkerSet(worker) if worker == WorkerRow(name=worker.name):
            connection.execute(queries.WORKER_REMOVE, (worker.name,))
        case WorkerSet(worker):
            connection.execute(queries.WORKER_SET, (worker.name, _encode(worker)))
        case ReservationSet(reservation):
            connection.execute(queries.RESERVATION_SET, (reservation.id, _encode(reservation)))
        case ReservationRemoved(id):
            connection.execute(queries.RESERVATION_REMOVE, (id,))


def workers(connection: sqlite3.Connection) -> list[WorkerRow]:
    return [_decode_worker(row) for (row,) in connection.execute(queries.WORKERS)]


def reservations(connection: sqlite3.Connection) -> list[Reservation]:
    return [_decode_reservation(row) for (row,) in connection.execute(queries.RESERVATIONS)]
