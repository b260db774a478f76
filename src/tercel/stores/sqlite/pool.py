"""What is kept of workers, for whom they are reserved, and what is turned off: a row each, as msgpack by field name."""

import sqlite3

import msgspec

from tercel.core.changes import ReservationRemoved, ReservationSet, SwitchSet, WorkerSet
from tercel.core.conditions import SwitchRow
from tercel.core.presence import Reservation, WorkerRow
from tercel.stores.sqlite import queries

_encode = msgspec.msgpack.Encoder().encode
_decode_worker = msgspec.msgpack.Decoder(WorkerRow).decode
_decode_switch = msgspec.msgpack.Decoder(SwitchRow).decode
_decode_reservation = msgspec.msgpack.Decoder(Reservation).decode


PoolChange = WorkerSet | ReservationSet | ReservationRemoved | SwitchSet


def keep(connection: sqlite3.Connection, change: PoolChange) -> None:
    match change:
        case SwitchSet(switch) if switch.off:
            connection.execute(queries.SWITCH_SET, (switch.name, _encode(switch)))
        case SwitchSet(switch):
            connection.execute(queries.SWITCH_REMOVE, (switch.name,))
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


def switches(connection: sqlite3.Connection) -> list[SwitchRow]:
    return [_decode_switch(row) for (row,) in connection.execute(queries.SWITCHES)]
