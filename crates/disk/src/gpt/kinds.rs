//! Names the types of partitions. Called by `spec`, and by commands that list partitions.
//!
//! The names and numbers are those of the Discoverable Partitions Specification of the UAPI group, and of the few types
//! that every disk may have besides.

use uuid::{Uuid, uuid};

/// Names of types and their identifiers.
pub const KINDS: [(&str, Uuid); 34] = [
    ("esp", uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")),
    ("xbootldr", uuid!("bc13c2ff-59e6-4262-a352-b275fd6f7172")),
    ("bios-boot", uuid!("21686148-6449-6e6f-744e-656564454649")),
    ("linux-generic", uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4")),
    ("swap", uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f")),
    ("home", uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915")),
    ("srv", uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8")),
    ("var", uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d")),
    ("tmp", uuid!("7ec6f557-3bc5-4aca-b293-16ef5df639d1")),
    ("user-home", uuid!("773f91ef-66d4-49b5-bd83-d683bf40ad16")),
    ("linux-lvm", uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928")),
    ("basic-data", uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7")),
    ("root-x86", uuid!("44479540-f297-41b2-9af7-d131d5f0458a")),
    ("root-x86-64", uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709")),
    ("root-arm", uuid!("69dad710-2ce4-4e3c-b16c-21a1d49abed3")),
    ("root-arm64", uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae")),
    ("root-riscv64", uuid!("72ec70a6-cf74-40e6-bd49-4bda08e8f224")),
    ("root-loongarch64", uuid!("77055800-792c-4f94-b39a-98c91b762bb6")),
    ("root-ppc64-le", uuid!("c31c45e6-3f39-412e-80fb-4809c4980599")),
    ("root-s390x", uuid!("5eead9a9-fe09-4a1e-a1d7-520d00531306")),
    ("usr-x86", uuid!("75250d76-8cc6-458e-bd66-bd47cc81a812")),
    ("usr-x86-64", uuid!("8484680c-9521-48c6-9c11-b0720656f69e")),
    ("usr-arm", uuid!("7d0359a3-02b3-4f0a-865c-654403e70625")),
    ("usr-arm64", uuid!("b0e01050-ee5f-4390-949a-9101b17104e9")),
    ("usr-riscv64", uuid!("beaec34b-8442-439b-a40b-984381ed097d")),
    ("usr-loongarch64", uuid!("e611c702-575c-4cbe-9a46-434fa0bf7e3f")),
    ("usr-ppc64-le", uuid!("15bb03af-77e7-4d4a-b12b-c0d084f7491c")),
    ("usr-s390x", uuid!("8a4f5770-50aa-4ed3-874a-99b710db6fea")),
    ("root-x86-64-verity", uuid!("2c7357ed-ebd2-46d9-aec1-23d437ec2bf5")),
    ("root-arm64-verity", uuid!("df3300ce-d69f-4c92-978c-9bfb0f38d820")),
    ("root-riscv64-verity", uuid!("b6ed5582-440b-4209-b8da-5ff7c419ea3d")),
    ("usr-x86-64-verity", uuid!("77ff5f63-e7b6-4633-acf4-1565b864c0e6")),
    ("usr-arm64-verity", uuid!("6e11a4e7-fbca-4ded-b9e9-e1a512bb664e")),
    ("usr-riscv64-verity", uuid!("8f1056be-9b05-47c4-81d6-be53128e5b54")),
];

/// The type of a name.
#[must_use]
pub fn kind_named(name: &str) -> Option<Uuid> {
    KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
}

/// The name of a type.
#[must_use]
pub fn kind_name(kind: Uuid) -> Option<&'static str> {
    KINDS.iter().find(|(_, known)| *known == kind).map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_its_own_type() {
        for (name, kind) in KINDS {
            assert_eq!(kind_named(name), Some(kind));
            assert_eq!(kind_name(kind), Some(name));
        }
    }
}
