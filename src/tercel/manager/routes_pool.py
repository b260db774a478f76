"""The routes about the pool, its queues, and who is let in."""

from tercel.manager import handlers
from tercel.manager.openapi import MAX_NUMBER, Operation, Parameter
from tercel.manager.routing import ADMINS, CHANGED, FOUND, MAX_REQUEST_BYTES, SENT, USERS, Route, look
from tercel.wire.api import (
    Counted,
    IssuedToken,
    NewReservation,
    NewToken,
    Pool,
    Quarantine,
    QueueList,
    QueueSettings,
    QueueView,
    ReservationList,
    ReservationView,
    Status,
    TagChange,
    Tags,
    TokenList,
)

_QUEUE = Parameter("queue", where="path", summary="the queue's name")
_WORKER = Parameter("worker", where="path", summary="its id, as in the pool")

POOL_ROUTES: list[Route] = [
    look("/v1/queues", "The queues and how they share", QueueList, handlers.get_queues),
    (
        Operation(
            method="PUT",
            path="/v1/queues/{queue}",
            roles=USERS,
            summary="Make or change a queue",
            parameters=(_QUEUE,),
            body=QueueSettings,
            most_bytes=MAX_REQUEST_BYTES,
            answer=QueueView,
            problems=CHANGED,
        ),
        handlers.put_queue,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/queues/{queue}",
            roles=ADMINS,
            summary="Remove a queue that is empty",
            parameters=(_QUEUE,),
            answer=Counted,
            problems=CHANGED,
        ),
        handlers.delete_queue,
    ),
    look("/v1/status", "How things stand", Status, handlers.get_status),
    look("/v1/pool", "The workers", Pool, handlers.get_pool),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/drain",
            roles=ADMINS,
            summary="Let a worker finish and leave",
            parameters=(_WORKER,),
            answer=Counted,
            problems=FOUND,
        ),
        handlers.post_drain,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/quarantine",
            roles=ADMINS,
            summary="Give a worker no more tasks until it is released",
            parameters=(_WORKER,),
            body=Quarantine,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Counted,
            problems=CHANGED,
        ),
        handlers.post_quarantine,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/release",
            roles=ADMINS,
            summary="End a worker's quarantine",
            parameters=(_WORKER,),
            answer=Counted,
            problems=CHANGED,
        ),
        handlers.post_worker_release,
    ),
    (
        Operation(
            method="POST",
            path="/v1/workers/{worker}/tags",
            roles=ADMINS,
            summary="Add tags to a worker, or take some from it",
            parameters=(_WORKER,),
            body=TagChange,
            most_bytes=MAX_REQUEST_BYTES,
            answer=Tags,
            problems=CHANGED,
        ),
        handlers.post_tags,
    ),
    look("/v1/reservations", "For whom workers are set aside", ReservationList, handlers.get_reservations),
    (
        Operation(
            method="POST",
            path="/v1/reservations",
            roles=ADMINS,
            summary="Set workers aside for a queue or a user, for a time",
            body=NewReservation,
            most_bytes=MAX_REQUEST_BYTES,
            answer=ReservationView,
            status=201,
            problems=SENT,
        ),
        handlers.post_reservation,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/reservations/{reservation}",
            roles=ADMINS,
            summary="End a reservation",
            parameters=(Parameter("reservation", "integer", "path", "its id", least=0, most=MAX_NUMBER),),
            answer=Counted,
            problems=CHANGED,
        ),
        handlers.delete_reservation,
    ),
    look("/v1/tokens", "The tokens", TokenList, handlers.get_tokens, roles=ADMINS),
    (
        Operation(
            method="POST",
            path="/v1/tokens",
            roles=ADMINS,
            summary="Issue a token; its text is shown once",
            body=NewToken,
            most_bytes=MAX_REQUEST_BYTES,
            answer=IssuedToken,
            status=201,
            problems=SENT,
        ),
        handlers.post_token,
    ),
    (
        Operation(
            method="DELETE",
            path="/v1/tokens/{token}",
            roles=ADMINS,
            summary="Revoke a token",
            parameters=(Parameter("token", where="path"),),
            answer=Counted,
            problems=FOUND,
        ),
        handlers.delete_token,
    ),
]
