"""What goes wrong with remote shards, in one line; stores raise what they like."""

from __future__ import annotations

from tfod.errors import TfodError, how_to_install
from tfod.tfrecord.storage.remote_timeout import TRY_AGAIN

_LONGEST_REASON = 300
_FORBIDDEN = (401, 403)
_CREDENTIALS = {
    "s3": "s3fs looks for AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE and "
    "AWS_ENDPOINT_URL; FSSPEC_S3_ANON=true reads a public bucket",
    "gs": "gcsfs looks for GOOGLE_APPLICATION_CREDENTIALS and for the login of gcloud; "
    "FSSPEC_GS_TOKEN=anon reads a public bucket",
    "https": "the server may ask for a login, or the signature of the address may have run out",
}
_CREDENTIALS["s3a"], _CREDENTIALS["gcs"] = _CREDENTIALS["s3"], _CREDENTIALS["gs"]
_CREDENTIALS["http"] = _CREDENTIALS["https"]


class RemoteError(TfodError):
    """A URL does not lead to anything that can be read; the message says why.

    Attributes:
        url: which.
        is_closed: whether there is nothing, or nothing for us: no error of the connection.
    """

    def __init__(self, url: str, reason: str, is_closed: bool = False) -> None:
        super().__init__(url, reason, is_closed)
        self.url = url
        self.reason = reason
        self.is_closed = is_closed

    def __str__(self) -> str:
        return f"{self.url}: {self.reason}"


def remote_error(url: str, error: BaseException) -> RemoteError:
    """What a store raised, as one line. Stores raise what they like."""
    if isinstance(error, RemoteError):
        return error
    protocol = url.partition("://")[0]
    reason = reason_of(error)
    if isinstance(error, ImportError):
        fix = (
            how_to_install("remote")
            if protocol.rpartition("::")[2] in _CREDENTIALS
            else "install it with pip"
        )
        return RemoteError(url, f"needs a package ({reason}); {fix}")
    if isinstance(error, FileNotFoundError):
        known = f" ({reason})" if "bucket does not exist" in reason else ""
        fix = "see whether the address is right"
        return RemoteError(url, f"is not there{known}; {fix}", is_closed=True)
    if _is_loop(error):
        fix = "see whether the address is right, or asks for a login"
        return RemoteError(url, f"is redirected again and again; {fix}", is_closed=True)
    if _is_forbidden(error):
        hint = _CREDENTIALS.get(protocol.rpartition("::")[2])
        fix = f"; {hint}" if hint else ""
        return RemoteError(url, f"may not be read ({reason}){fix}", is_closed=True)
    if isinstance(error, ValueError) and "rotocol" in reason:
        return RemoteError(url, f"{protocol}:// is not a URL scheme that fsspec knows")
    if isinstance(error, IsADirectoryError):
        return RemoteError(url, "is a folder", is_closed=True)
    is_closed = 400 <= status_of(error) < 500
    return RemoteError(url, f"cannot be reached: {reason}; {TRY_AGAIN}", is_closed)


def reason_of(error: BaseException) -> str:
    """The words of an error in one line."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    line = " ".join(str(text).split())
    return line if len(line) <= _LONGEST_REASON else line[:_LONGEST_REASON] + "…"


def is_final(error: BaseException) -> bool:
    """Whether trying again would not help: nothing is there, or nothing for us."""
    status = status_of(error)
    return (
        isinstance(error, (RemoteError, FileNotFoundError, IsADirectoryError, ImportError))
        or _is_forbidden(error)
        or _is_loop(error)
        or (400 <= status < 500 and status not in (408, 425, 429))
    )


def _is_loop(error: BaseException) -> bool:
    return type(error).__name__ == "TooManyRedirects"  # aiohttp's, whose words are none


def _is_forbidden(error: BaseException) -> bool:
    return (
        isinstance(error, PermissionError)
        or status_of(error) in _FORBIDDEN
        or "Credentials" in type(error).__name__  # botocore's and google-auth's
    )


def status_of(error: BaseException) -> int:
    """The status of an answer over HTTP; 0 where the error is none."""
    status = getattr(error, "status", None) or getattr(error, "code", None)
    return status if isinstance(status, int) else 0
