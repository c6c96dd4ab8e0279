"""Records that volumes and checks return."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, Optional, Tuple
from uuid import UUID


@dataclasses.dataclass(frozen=True)
class Info:
    """The facts of a volume."""

    format: str
    label: str
    uuid: UUID
    block_bytes: int
    total_bytes: int
    free_bytes: int

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> Info:
        return cls(**{**record, "uuid": UUID(bytes=bytes(record["uuid"]))})


@dataclasses.dataclass(frozen=True)
class Subvolume:
    """A subvolume. Generations are numbers of commits, times are nanoseconds since 1970; 0 where there is none."""

    id: int
    #: The subvolume that contains it, and the directory there; 0 for the top level.
    parent_id: int
    dir_id: int
    #: From the top level, without a leading slash.
    path: str
    uuid: UUID
    #: Of the subvolume that it is a snapshot of, or `None`.
    parent_uuid: Optional[UUID]
    #: Of the subvolume that it was received from, or `None`.
    received_uuid: Optional[UUID]
    generation: int
    created: int
    changed: int
    sent: int
    received: int
    otime_ns: int
    stime_ns: int
    rtime_ns: int
    read_only: bool

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> Subvolume:
        uuids = {name: _uuid(record[name]) for name in ("uuid", "parent_uuid", "received_uuid")}
        return cls(**{**record, **uuids})


@dataclasses.dataclass(frozen=True)
class NameChange:
    """A name that an inode lost (`old`), got (`new`), or had changed."""

    old: Optional[str]
    new: Optional[str]


@dataclasses.dataclass(frozen=True)
class Change:
    """An inode that differs between two subvolumes: `Added`, `Removed` or `Changed`."""

    inode: int
    #: Type bits of its mode, for `stat.S_ISDIR` and the like.
    type_bits: int
    names: Tuple[NameChange, ...]

    @property
    def paths(self) -> Tuple[str, ...]:
        """Its paths in the second subvolume, or in the first one if it was removed."""
        paths = [name.new if name.new is not None else name.old for name in self.names]
        return tuple(path for path in paths if path is not None)

    @staticmethod
    def _of(record: Dict[str, Any]) -> Change:
        names = tuple(NameChange(old, new) for old, new in record["names"])
        inode, type_bits = record["inode"], record["type_bits"]
        if record["kind"] == "added":
            return Added(inode, type_bits, names)
        if record["kind"] == "removed":
            return Removed(inode, type_bits, names)
        data = tuple(record["data"])
        return Changed(inode, type_bits, names, record["path"], data, record["size"], record["metadata"])


@dataclasses.dataclass(frozen=True)
class Added(Change):
    """Only the second subvolume has it."""


@dataclasses.dataclass(frozen=True)
class Removed(Change):
    """Only the first subvolume has it."""


@dataclasses.dataclass(frozen=True)
class Changed(Change):
    """Both subvolumes have it."""

    #: A path that it has in the second subvolume.
    path: str
    #: First byte and end of the ranges of a file that are in other extents; their bytes may be the same.
    data: Tuple[Tuple[int, int], ...]
    #: Its size before and after, where that differs.
    size: Optional[Tuple[int, int]]
    #: Owner, permissions, times or attributes differ.
    metadata: bool

    @property
    def paths(self) -> Tuple[str, ...]:
        return super().paths or (self.path,)


@dataclasses.dataclass(frozen=True)
class Received:
    """A subvolume that was received."""

    path: str
    id: int
    uuid: UUID
    is_snapshot: bool


@dataclasses.dataclass(frozen=True)
class Extent:
    """A range of a file on the device; holes are none."""

    offset: int
    length: int
    #: "data", "inline" or "preallocated".
    kind: str
    #: Address within the volume; `None` for inline data.
    logical: Optional[int]
    #: Bytes of the whole extent on disk; 0 for inline data.
    disk_length: int
    compression: Optional[str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """Damage that a check found."""

    #: The code, which does not change: `spinney check --codes` explains it.
    code: str
    #: The pass that found it.
    check: str
    about: str
    what: str
    path: Optional[str]
    place: Tuple[Tuple[str, Tuple[int, ...]], ...]
    expected: str
    found: str

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> Finding:
        place = tuple((name, tuple(numbers)) for name, numbers in record["place"])
        return cls(**{**record, "place": place})


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """The findings of a check. It is true if the volume is sound."""

    #: Number of findings, of which `findings` may leave out some.
    errors: int
    findings: Tuple[Finding, ...]
    #: Number of findings of each code.
    counts: Dict[str, int]
    passes: Tuple[str, ...]
    notes: Tuple[str, ...]
    inodes: int
    bytes: int

    def __bool__(self) -> bool:
        return self.errors == 0

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> CheckReport:
        findings = tuple(Finding._of(finding) for finding in record["findings"])
        lists = {name: tuple(record[name]) for name in ("passes", "notes")}
        return cls(**{**record, **lists, "findings": findings, "counts": dict(record["counts"])})


def _uuid(value: Any) -> Optional[UUID]:
    value = bytes(value)
    return UUID(bytes=value) if any(value) else None


@dataclasses.dataclass(frozen=True)
class Fork:
    """A fork of a subvolume."""

    path: str
    #: The number of its subvolume.
    id: int
    uuid: UUID
    #: The path of its base; `None` if that is gone, or outside the volume's root.
    base: Optional[str]
    #: Nanoseconds since 1970.
    created_ns: int
    #: Seconds since 1970.
    expires: Optional[int]
    #: Bytes that its own data may take.
    limit: Optional[int]
    read_only: bool

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> Fork:
        return cls(**{**record, "uuid": UUID(bytes=bytes(record["uuid"]))})


@dataclasses.dataclass(frozen=True)
class Conflict:
    """A path at which a fork and the target of its merge contradict each other."""

    #: From the root of the subvolume.
    path: str
    kind: str
    #: Where the version lies that was not taken.
    kept: Optional[str]


@dataclasses.dataclass(frozen=True)
class Merged:
    """The result of a merge."""

    target: str
    #: Names that it made, changed or removed.
    changes: int
    conflicts: Tuple[Conflict, ...]
    #: True if the target has the changes now; false if it had them already, and after conflicts.
    is_merged: bool

    @classmethod
    def _of(cls, record: Dict[str, Any]) -> Merged:
        conflicts = tuple(Conflict(*conflict) for conflict in record["conflicts"])
        return cls(**{**record, "target": str(record["target"]), "conflicts": conflicts})
