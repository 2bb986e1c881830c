"""Objects below one root: ranged reads, atomic puts, streams that publish only when complete.

An object is written once, or replaced as a whole. Keys are relative to the root, with "/" between
their parts; see `seglake.layout`.
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from seglake.errors import ConfigError
from seglake.store.dry import dry
from seglake.store.interface import Listed, Reader, Stat, Store, Writer
from seglake.store.local import OpenFile, is_local, local_file, local_store, nearby_root, release

__all__ = [
    "Listed",
    "OpenFile",
    "Reader",
    "Stat",
    "Store",
    "Writer",
    "dry",
    "is_local",
    "local_file",
    "nearby_root",
    "open_store",
    "release",
]

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "memory")


def open_store(uri: str, storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at `uri`: a path, `file:`, `s3:`, `s3a:`, `gs:`, `abfs(s):`, `az:` or `memory:`.

    The call contacts no server and caches nothing; a local root need not exist. Raises ConfigError
    for an unknown scheme and for credentials in the URI.
    """
    options = dict(storage_options or {})
    scheme, colon, rest = uri.partition(":")
    if scheme == "file" and colon:
        return local_store(unquote(urlsplit(uri).path), options)
    if not rest.startswith("//"):
        if scheme in (*_SCHEMES, "s3a") and rest.startswith("/"):
            raise ConfigError(f"a URI has one slash after {scheme}: and needs two: {scheme}://…")
        return local_store(uri, options)
    scheme = "s3" if scheme == "s3a" else scheme
    if scheme not in _SCHEMES:
        schemes = ", ".join(("a local path", "file", "s3a", *_SCHEMES))
        raise ConfigError(f"{scheme}: is not a storage that Seglake knows; known are {schemes}")
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    if at and (":" in user or not scheme.startswith("abfs")):
        raise ConfigError(f"a {scheme}: URI must not hold credentials; use the environment")
    if "?" in rest or "#" in rest:  # the message leaves it out, since it may hold a secret
        raise ConfigError(
            f"a {scheme}: URI must not have a query string or a fragment; use storage options, the"
            " environment for secrets, and %3F and %23 for ? and # of a key"
        )
    from seglake.store.objects import object_store  # noqa: PLC0415  # local disks need no obstore

    return object_store(f"{scheme}:{rest.rstrip('/')}", options)
