"""Objects below one root, with ranged reads, atomic puts, and streams that publish on success.

An object is written once, or replaced as a whole. Keys are relative to the root, and their parts
are separated by "/" (see `seglake.layout`).
"""

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from seglake.errors import ConfigError
from seglake.store.dry import dry_store
from seglake.store.interface import Listed, Reader, RefusedKey, Stat, Store, Writer
from seglake.store.local import OpenFile, close_unused_files, is_local, local_file, local_store

__all__ = [
    "Listed",
    "OpenFile",
    "Reader",
    "RefusedKey",
    "Stat",
    "Store",
    "Writer",
    "close_unused_files",
    "dry_store",
    "is_local",
    "local_file",
    "open_store",
]

_SCHEMES = ("s3", "gs", "az", "abfs", "abfss", "memory")


def open_store(uri: str, storage_options: Mapping[str, str] | None = None) -> Store:
    """Return the store at a URI, without contacting a server.

    Args:
        uri: A local path, which need not exist, or a URI with the scheme `file:`, `s3:`, `s3a:`,
            `gs:`, `abfs:`, `abfss:`, `az:` or `memory:`.
        storage_options: Options with the names that `deltalake` uses.

    Raises:
        ConfigError: The scheme is unknown, or the URI has credentials, a query or a fragment.
    """
    options = dict(storage_options or {})
    scheme, colon, rest = uri.partition(":")
    # A query may have a secret, so the message does not repeat it.
    if colon and (scheme == "file" or rest.startswith("//")) and set("?#") & {*rest}:
        raise ConfigError(
            f"a {scheme}: URI must not have a query string or a fragment. Use storage options, "
            f"the environment for secrets, and %3F and %23 for ? and # in a name"
        )
    if scheme == "file" and colon:
        return local_store(unquote(urlsplit(uri).path), options)
    if not rest.startswith("//"):
        if scheme in (*_SCHEMES, "s3a") and rest.startswith("/"):
            raise ConfigError(f"the URI has only one slash after {scheme}:. Write {scheme}://…")
        return local_store(uri, options)
    scheme = "s3" if scheme == "s3a" else scheme
    if scheme not in _SCHEMES:
        schemes = ", ".join(("a local path", "file", "s3a", *_SCHEMES))
        raise ConfigError(f"Seglake does not support the storage {scheme}:. Use one of {schemes}")
    user, at, _ = urlsplit(uri).netloc.rpartition("@")
    if at and (":" in user or not scheme.startswith("abfs")):
        raise ConfigError(f"the {scheme}: URI contains credentials. Set them in the environment")
    # Local disks need no obstore, so import it late.
    from seglake.store.object_store import object_store  # noqa: PLC0415

    return object_store(f"{scheme}:{rest.rstrip('/')}", options)
