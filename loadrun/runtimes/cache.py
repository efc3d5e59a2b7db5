"""Converted models kept in a folder that processes may share.

An entry is a file that is called like its key and begins with the key and a digest of what follows; one whose digest
does not agree is as good as absent, and is written again. Files appear when they are complete. A digest tells damage,
not malice: who may write to the folder decides what is executed, as with any program's files.
"""

from hashlib import blake2b
from pathlib import Path

from ..base.errors import UsageError
from ..base.files import opened
from ..base.writing import replacing

_MAGIC = b"loadrun-cache 1"


class Cache:
    """Bytes by key.

    Args:
        folder: where they are kept; it is made on first use.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = Cache(Path(folder) / "models")
    ...     key = cache.key("a model", "its shapes")
    ...     before, _, after = cache.get(key), cache.put(key, b"converted"), cache.get(key)
    >>> before, after
    (None, b'converted')
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @staticmethod
    def key(*parts: object) -> str:
        """Make a key of all that an entry depends on."""
        digest = blake2b(digest_size=20)
        for part in parts:
            text = str(part).encode("utf-8", "surrogateescape")
            digest.update(b"%d:" % len(text) + text)
        return digest.hexdigest()

    def get(self, key: str) -> bytes | None:
        """Return the bytes of a key, None if there are none, or damaged ones."""
        try:
            with opened(self.folder / key, "an entry of the cache") as file:
                head, data = file.readline(200), file.read()
        except OSError:
            return None
        return data if head == self._head(key, data) else None

    def put(self, key: str, data: bytes) -> None:
        """Keep the bytes of a key.

        Raises:
            UsageError: the folder cannot be written to.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / key) as file:
                file.write(self._head(key, data))
                file.write(data)
        except OSError as e:
            raise UsageError(f"the cache {self.folder} cannot be written to: {e.strerror or e}") from e

    @staticmethod
    def _head(key: str, data: bytes) -> bytes:
        return b" ".join((_MAGIC, key.encode(), blake2b(data, digest_size=20).hexdigest().encode())) + b"\n"
