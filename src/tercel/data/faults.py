"""What really happens, and what trouble that is: one table for all schemes.

    what was raised, or answered                                     trouble
    errno (a file system's, a socket's)                              _ERRNOS
    status of HTTP; 429 and 503 with Retry-After                     of_status
    code of S3 (botocore's ClientError, wherever it is in the chain) _CODES, else its status
    name of an exception, or of one that it descends from            _NAMES: of libraries that are not imported here

Whose fault it is: only what this node's own disk said while a file was written to it or read from it carries an errno.
"""

import errno
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

from tercel.core.files import Trouble
from tercel.data.contract import TransferFailed
from tercel.data.urls import note_of, shown
from tercel.data.watches import Cancelled, Stalled, Watch

_ERRNOS = {
    errno.ENOSPC: Trouble.FULL,
    errno.EDQUOT: Trouble.FULL,
    errno.EFBIG: Trouble.FULL,
    errno.EACCES: Trouble.DENIED,
    errno.EPERM: Trouble.DENIED,
    errno.EROFS: Trouble.DENIED,
    errno.ENOENT: Trouble.MISSING,
    errno.EBUSY: Trouble.BUSY,
    errno.EAGAIN: Trouble.BUSY,
    errno.EISDIR: Trouble.REFUSED,
    errno.ENOTDIR: Trouble.REFUSED,
    errno.ENAMETOOLONG: Trouble.REFUSED,
    errno.EINVAL: Trouble.REFUSED,
    errno.ELOOP: Trouble.REFUSED,
    errno.EEXIST: Trouble.REFUSED,
    errno.ENOTEMPTY: Trouble.REFUSED,
}
"""All others (EIO, ESTALE, ECONNRESET, EMFILE …): down."""
_STATUSES = {
    401: Trouble.DENIED,
    403: Trouble.DENIED,
    404: Trouble.MISSING,
    407: Trouble.DENIED,
    408: Trouble.DOWN,
    410: Trouble.MISSING,
    425: Trouble.BUSY,
    429: Trouble.BUSY,
    501: Trouble.REFUSED,
    503: Trouble.BUSY,
    507: Trouble.FULL,
}
"""All others: refused if below 500, else down."""
_CODES = {
    "AccessDenied": Trouble.DENIED,
    "ExpiredToken": Trouble.DENIED,
    "ExpiredTokenException": Trouble.DENIED,
    "InvalidAccessKeyId": Trouble.DENIED,
    "InvalidToken": Trouble.DENIED,
    "RequestTimeTooSkewed": Trouble.DENIED,
    "SignatureDoesNotMatch": Trouble.DENIED,
    "NoSuchBucket": Trouble.MISSING,
    "NoSuchKey": Trouble.MISSING,
    "PreconditionFailed": Trouble.CORRUPT,
    "QuotaExceeded": Trouble.FULL,
    "XMinioStorageFull": Trouble.FULL,
    "RequestLimitExceeded": Trouble.BUSY,
    "SlowDown": Trouble.BUSY,
    "Throttling": Trouble.BUSY,
    "ThrottlingException": Trouble.BUSY,
    "TooManyRequests": Trouble.BUSY,
}
_NAMES = {
    "NoCredentialsError": Trouble.DENIED,
    "PartialCredentialsError": Trouble.DENIED,
    "CredentialRetrievalError": Trouble.DENIED,
    "TokenRetrievalError": Trouble.DENIED,
    "AuthenticationException": Trouble.DENIED,
    "ParamValidationError": Trouble.REFUSED,
    "ClientConnectorDNSError": Trouble.UNKNOWN_HOST,
    "EndpointConnectionError": Trouble.DOWN,
    "HTTPClientError": Trouble.DOWN,
    "ClientError": Trouble.DOWN,
    "IncompleteRead": Trouble.DOWN,
}
_LATER_MOST_S = 86_400.0
"""A server that asks for a year of patience gets a day of it."""
_CAUSES_MOST = 20


def failed(error: BaseException, url: str) -> TransferFailed:
    """What it is for whoever asked for this URL."""
    if isinstance(error, TransferFailed):
        return error
    trouble, said = _judged(error)
    return TransferFailed(trouble, shown(url), note_of(f"{shown(url)}: {said}"))


@contextmanager
def told(url: str, watch: Watch) -> Iterator[None]:
    """Whatever is raised within is told as trouble with this URL; the end of the watch comes before what followed from it."""
    try:
        yield
    except Exception as error:
        why = watch.why or error
        if isinstance(why, Cancelled):
            raise why from error
        raise failed(why, url) from error


@contextmanager
def own_disk(path: str, url: str) -> Iterator[None]:
    """What goes wrong within is this node's own fault, whatever URL it is for."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "EIO")
        trouble = _ERRNOS.get(error.errno or 0, Trouble.DOWN)
        note = note_of(f"{path}, on this node's disk: {os.strerror(error.errno or errno.EIO).lower()}")
        raise TransferFailed(trouble, shown(url), note, errno=name) from error


def of_status(status: int, retry_after: str, url: str) -> TransferFailed:
    """An answer of HTTP that is no success."""
    trouble = _STATUSES.get(status, Trouble.REFUSED if status < 500 else Trouble.DOWN)
    later = retry_after_s(retry_after) if trouble is Trouble.BUSY else 0.0
    words = http.client.responses.get(status, "")
    return TransferFailed(trouble, shown(url), note_of(f"{shown(url)} answers {status} {words}"), later)


def retry_after_s(text: str) -> float:
    """`120`, or a date; what is neither says nothing."""
    text = text.strip()
    if text.isascii() and text.isdecimal():
        return min(float(text[:10]), _LATER_MOST_S)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - time.time()), _LATER_MOST_S)
    except (ValueError, OverflowError):
        return 0.0


def _judged(error: BaseException) -> tuple[Trouble, str]:
    """The first in the chain of causes that says more than `it failed`; libraries wrap what they were told."""
    chain = list(_chain(error))
    for each in chain:
        if (judged := _by_code(each)) is not None:
            return judged, _words(each)
    for each in chain:
        if (judged := _by_kind(each)) is not None:
            return judged, _words(each)
    return Trouble.DOWN, f"{type(error).__name__}: {_words(error)}"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: BaseException | None = error
    for _ in range(_CAUSES_MOST):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def _by_code(error: BaseException) -> Trouble | None:
    """Of botocore's ClientError, whose answer hangs on it."""
    answer = getattr(error, "response", None)
    if not isinstance(answer, dict):
        return None
    code = answer.get("Error", {}).get("Code", "")
    if code in _CODES:
        return _CODES[code]
    status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if not isinstance(status, int) or status < 300:
        return None
    return _STATUSES.get(status, Trouble.REFUSED if status < 500 else Trouble.DOWN)


def _by_kind(error: BaseException) -> Trouble | None:
    if isinstance(error, Stalled | TimeoutError | ConnectionError | ssl.SSLError | http.client.HTTPException):
        return Trouble.DOWN if not isinstance(error, http.client.InvalidURL) else Trouble.REFUSED
    if isinstance(error, socket.gaierror):
        return Trouble.UNKNOWN_HOST
    for kind in type(error).__mro__:
        if kind.__name__ in _NAMES:
            return _NAMES[kind.__name__]
    if isinstance(error, OSError) and error.errno is not None:
        return _ERRNOS.get(error.errno, Trouble.DOWN)
    if isinstance(error, FileNotFoundError):
        return Trouble.MISSING
    if isinstance(error, PermissionError):
        return Trouble.DENIED
    if isinstance(error, IsADirectoryError | NotADirectoryError | FileExistsError | NotImplementedError):
        return Trouble.REFUSED
    if isinstance(error, ValueError | TypeError | ImportError):
        return Trouble.REFUSED  # of libraries, for what they cannot do with a URL
    return None


def _words(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {getattr(error, 'verify_message', error)}"
    if isinstance(error, socket.gaierror):
        return f"its host cannot be found: {error.strerror}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and type(error).__module__ == "builtins" and error.errno in errno.errorcode:
        return os.strerror(error.errno or 0).lower()
    return str(error) or type(error).__name__
