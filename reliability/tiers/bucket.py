"""How does one talk to an object store so that its errors are those of a tier, and no secret gets into them?

A thin layer over the library that speaks S3, GCS and Azure. Credentials come from the environment by each provider's
own names (AWS_*, GOOGLE_*, AZURE_*) and are read by the library alone. Its messages may quote the address that was
asked for, which on Azure can hold a token, so that nothing after a question mark is passed on.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from reliability.errors import CopyMissing, InvalidInput, TierError, TierFull, TierUnreachable

if TYPE_CHECKING:  # the library has these names for type checkers alone
    from obstore import PutMode
    from obstore.store import ClientConfig, RetryConfig

ALLOW_HTTP = ("AWS_ALLOW_HTTP", "GOOGLE_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
UNSIGNED = ("AWS_UNSIGNED_PAYLOAD", "AWS_SKIP_SIGNATURE")
CLIENT: "ClientConfig" = {"connect_timeout": "5s", "timeout": "120s", "pool_idle_timeout": "30s"}
RETRIES: "RetryConfig" = {"max_retries": 3, "retry_timeout": timedelta(seconds=20)}
KINDS = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_URL = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,254})((?:/[A-Za-z0-9_][A-Za-z0-9._=-]*)*)")
_QUERY = re.compile(r"\?[^\s)]*")
_FULL = re.compile(r"\b507\b|StorageFull|QuotaExceeded|InsufficientStorage|InsufficientCapacity", re.IGNORECASE)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_WRONG_CLOCK = re.compile(r"RequestTimeTooSkewed|RequestExpired|AuthenticationFailed.*Date header", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(r"//169\.254\.|//metadata|credential", re.IGNORECASE)  # no variables: it asks the machine
_REASON_CHARACTERS = 300
_CREDENTIALS_HINT = "Give the agent's environment the store's credentials (AWS_*, GOOGLE_* or AZURE_* variables)."
_BUCKET_HINT = "Make the bucket, or correct the job's storage_dir; copies are tried again by themselves."
_CLOCK_HINT = "Set the node's clock: stores refuse requests dated minutes off. Copies are tried again by themselves."
_REACH_HINT = "Check the store and the node's way to it; copies are tried again by themselves."


@dataclass(frozen=True, kw_only=True)
class Found:
    """One object as a listing shows it. `modified_at` is told by the store's clock."""

    path: str
    size_bytes: int
    e_tag: str
    modified_at: datetime


@dataclass(frozen=True, kw_only=True)
class Version:
    """Which state of an object was read, as a conditional write must name it."""

    e_tag: str | None
    version: str | None


class Bucket:
    """The objects below one URL such as `s3://bucket/prefix`."""

    def __init__(self, url: str, store: ObjectStore | None = None) -> None:
        self.url = url.rstrip("/")
        self._opened = store

    @property
    def refuses_other_content(self) -> bool:
        """Whether the store itself compares what comes with what was sent.

        On S3 each request is signed together with the SHA-256 of its content, unless the environment says otherwise.
        """
        return self.url.startswith("s3://") and not any(_is_set(name) for name in UNSIGNED)

    @property
    def _store(self) -> ObjectStore:
        """The library's store, opened when it is first used. Raises TierUnreachable."""
        if self._opened is None:
            self._opened = _opened(self.url)
        return self._opened

    def read(self, path: str) -> tuple[bytes, Version]:
        """Return a small object and its version. Raises CopyMissing, TierUnreachable."""
        with self._errors(path):
            found = obstore.get(self._store, path)
            meta = found.meta
            return bytes(found.bytes()), Version(e_tag=meta.get("e_tag"), version=meta.get("version"))

    def write(self, path: str, content: bytes, *, replacing: Version | None) -> bool:
        """Write an object if it still is the version that was read, or if there is none; return whether it was."""
        mode: PutMode = "create"
        if replacing is not None:
            mode = {}  # a store tells tag, version or both
            if replacing.e_tag is not None:
                mode["e_tag"] = replacing.e_tag
            if replacing.version is not None:
                mode["version"] = replacing.version
        try:
            with self._errors(path):
                obstore.put(self._store, path, content, mode=mode)
        except (_OvertakenError, CopyMissing):
            return False
        return True

    def put(self, path: str, content: memoryview | bytes) -> str:
        """Write an object, in one request, and return the tag that the store gave it ('' for none)."""
        with self._errors(path):
            return obstore.put(self._store, path, content, use_multipart=False).get("e_tag") or ""

    def get(self, path: str) -> bytes:
        """Return the whole of an object. Raises CopyMissing, TierUnreachable."""
        return self.read(path)[0]

    def listed(self, folder: str) -> Iterator[Found]:
        """Yield all objects below a folder ('' for all)."""
        with self._errors(folder):
            for page in obstore.list(self._store, prefix=folder or None):
                for each in page:
                    yield Found(
                        path=each["path"],
                        size_bytes=each["size"],
                        e_tag=each.get("e_tag") or "",
                        modified_at=each["last_modified"],
                    )

    def delete(self, paths: Sequence[str]) -> None:
        """Remove objects; those that are not there are no error."""
        for path in paths:
            with contextlib.suppress(CopyMissing), self._errors(path):
                obstore.delete(self._store, path)

    @contextlib.contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        try:
            yield
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError) as error:
            raise _OvertakenError(f"{self.url}/{path} was written by another.") from error
        except (exceptions.BaseError, OSError) as error:
            # The library's message is not kept as the cause: a traceback in a log would tell all of it.
            raise _translated(error, f"{self.url}/{path}") from None


class _OvertakenError(TierError):
    """Somebody else wrote first."""


def _translated(error: Exception, place: str) -> TierError:
    text = str(error)
    if _NO_BUCKET.search(text):
        return TierUnreachable(f"{place}: there is no such bucket.", hint=_BUCKET_HINT)
    if isinstance(error, FileNotFoundError):
        return CopyMissing(f"There is no object {place}.")
    if _FULL.search(text):
        return TierFull(f"No room for {place}: {_reason(text)}")
    if _WRONG_CLOCK.search(text):
        return TierUnreachable(f"{place} refuses this node's clock: {_reason(text)}", hint=_CLOCK_HINT)
    refused = isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError)
    if refused or _NO_CREDENTIALS.search(text):
        return TierUnreachable(f"{place} may not be used: {_reason(text)}", hint=_CREDENTIALS_HINT)
    return TierUnreachable(f"{place} cannot be reached: {_reason(text)}", hint=_REACH_HINT)


def _reason(text: str) -> str:
    """Return what the library says of an error, without the parts of addresses that may hold a token."""
    first = _QUERY.sub("", text.partition("Debug source:")[0].strip())
    return " ".join(first.split())[:_REASON_CHARACTERS]


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "").lower() in {"1", "true", "yes", "on"}


def _opened(url: str) -> ObjectStore:
    scheme, place, prefix = split(url)
    kind: type[S3Store] | type[GCSStore] | type[AzureStore] = KINDS[scheme]
    try:  # each kind of store reads the environment itself
        options: ClientConfig = {**CLIENT, "allow_http": any(_is_set(name) for name in ALLOW_HTTP)}
        return kind(place, prefix=prefix or None, client_options=options, retry_config=RETRIES)
    except exceptions.BaseError as error:
        raise TierUnreachable(f"{url} cannot be used: {_reason(str(error))}", hint=_CREDENTIALS_HINT) from None


def split(url: str) -> tuple[str, str, str]:
    """Return scheme, bucket or container, and prefix ('' for none) of a URL. Raises InvalidInput."""
    found = _URL.fullmatch(url.rstrip("/"))
    if found is None:
        raise InvalidInput(
            "storage_dir",
            "is no address of an object store",
            hint="As in s3://bucket/prefix, gs://bucket/prefix or az://container/prefix; no credentials, no query.",
        )
    return found[1], found[2], found[3].lstrip("/")
