//! Lists difficult changes for a sender, written by hand. `send_histories` sends each.

use std::path::PathBuf;

use super::place::Op;

/// A subvolume before and after a change.
pub(super) struct Case {
    // The volume is mounted anew at each `Op::Sync`.
    pub(super) name: &'static str,
    pub(super) before: fn() -> Vec<Op>,
    pub(super) after: fn() -> Vec<Op>,
}

fn file(path: &str) -> Op {
    Op::Make(PathBuf::from(path), path.as_bytes().repeat(3000))
}

fn dir(path: &str) -> Op {
    Op::MakeDir(PathBuf::from(path))
}

fn mv(from: &str, to: &str) -> Op {
    Op::Rename(PathBuf::from(from), PathBuf::from(to))
}

fn rm(path: &str) -> Op {
    Op::Remove(PathBuf::from(path))
}

fn rm_all(path: &str) -> Op {
    Op::RemoveAll(PathBuf::from(path))
}

fn ln(from: &str, to: &str) -> Op {
    Op::Link(PathBuf::from(from), PathBuf::from(to))
}

fn xattr(path: &str, name: &str, value: &[u8]) -> Op {
    Op::SetXattr(PathBuf::from(path), name.to_owned(), value.to_vec())
}

fn without_xattr(path: &str, name: &str) -> Op {
    Op::RemoveXattr(PathBuf::from(path), name.to_owned())
}

fn write(path: &str, offset: u64, len: usize) -> Op {
    Op::Write(PathBuf::from(path), offset, vec![7; len])
}

fn clone(from: &str, from_offset: u64, to: &str, offset: u64, len: u64) -> Op {
    Op::Reflink(PathBuf::from(from), from_offset, PathBuf::from(to), offset, len)
}

const CAPABILITY: &[u8] = &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const DEFAULT_ACL: &[u8] = &[
    2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 7, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255, 255, 255, 16, 0, 7, 0,
    255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "two-swapped",
        before: || vec![dir("a"), file("a/x"), dir("b"), file("b/y"), file("f"), file("g")],
        after: || vec![mv("a", "t"), mv("b", "a"), mv("t", "b"), mv("f", "t"), mv("g", "f"), mv("t", "g")],
    },
    Case {
        name: "three-in-a-circle",
        before: || vec![dir("a"), dir("b"), dir("c"), file("a/1"), file("b/2"), file("c/3"), file("a/4")],
        after: || {
            let circle = vec![mv("a", "t"), mv("b", "a"), mv("c", "b"), mv("t", "c")];
            let files = vec![mv("c/1", "t"), mv("a/2", "c/1"), mv("b/3", "a/2"), mv("t", "b/3"), mv("c/4", "a/4")];
            [circle, files].concat()
        },
    },
    Case {
        name: "child-and-parent-swapped",
        before: || vec![dir("a"), dir("a/b"), dir("a/b/c"), file("a/x"), file("a/b/y"), file("a/b/c/z")],
        after: || vec![mv("a/b/c", "c"), mv("a/b", "c/b"), mv("a", "c/b/a")],
    },
    Case {
        name: "parent-gone-children-out",
        before: || vec![dir("d"), dir("d/e"), file("d/e/x"), file("d/y"), dir("d/e/f"), file("d/e/f/z")],
        after: || vec![mv("d/e/f", "f"), mv("d/e/x", "f/x"), mv("d/y", "y"), rm_all("d")],
    },
    Case {
        name: "file-becomes-directory",
        before: || vec![file("a"), dir("b"), file("b/x"), file("c")],
        after: || vec![rm("a"), dir("a"), file("a/new"), rm_all("b"), file("b"), mv("c", "a/c")],
    },
    Case {
        name: "numbers-given-again",
        before: || vec![dir("keep"), file("keep/f"), file("x"), dir("y"), file("y/z")],
        // The next mount gives the numbers again.
        after: || vec![rm_all("y"), rm("x"), Op::Sync, dir("x"), file("x/in"), file("y")],
    },
    Case {
        name: "links",
        before: || vec![file("a"), dir("d"), ln("a", "d/b"), ln("a", "c"), file("e"), ln("e", "d/e2")],
        after: || vec![ln("d/b", "moved"), rm("a"), rm("c"), mv("d/b", "a2"), rm("e"), mv("d/e2", "e"), ln("e", "d/x")],
    },
    Case {
        name: "directory-into-new-one",
        before: || vec![dir("old"), file("old/f"), dir("old/sub"), file("old/sub/g")],
        after: || vec![dir("new"), dir("new/deep"), mv("old", "new/deep/old"), mv("new/deep/old/sub", "new/sub")],
    },
    Case {
        name: "named-as-what-is-set-aside",
        before: || {
            let mut ops = vec![file("a"), dir("d")];
            ops.extend((5..16).map(|generation| dir(&format!("o258-{generation}-0"))));
            ops
        },
        after: || {
            let mut ops = vec![mv("a", "b"), mv("d", "e")];
            ops.extend((5..16).map(|generation| file(&format!("o257-{generation}-0"))));
            ops
        },
    },
    Case {
        name: "inherited-attributes",
        before: || {
            vec![
                dir("acl"),
                file("acl/before"),
                dir("prop"),
                xattr("acl", "system.posix_acl_default", DEFAULT_ACL),
                file("acl/inherits"),
                dir("acl/sub"),
                file("acl/sub/inherits"),
                without_xattr("acl/sub", "system.posix_acl_default"),
                file("acl/sub/plain"),
                xattr("", "system.posix_acl_default", DEFAULT_ACL),
                file("prop/before"),
                xattr("prop", "btrfs.compression", b"zstd"),
                file("prop/inherits"),
            ]
        },
        after: || {
            vec![
                file("new"),
                mv("prop/before", "acl/moved"),
                dir("acl/dir"),
                without_xattr("acl/dir", "system.posix_acl_default"),
                without_xattr("acl", "system.posix_acl_default"),
                file("acl/after"),
                xattr("prop", "btrfs.compression", b""),
                file("prop/after"),
                without_xattr("", "system.posix_acl_default"),
                file("top"),
            ]
        },
    },
    Case {
        name: "privileges",
        before: || {
            vec![
                file("cap"),
                xattr("cap", "security.capability", CAPABILITY),
                file("owned"),
                xattr("owned", "security.capability", CAPABILITY),
                file("suid"),
                Op::Mode(PathBuf::from("suid"), 0o6755),
                file("lost"),
                xattr("lost", "security.capability", CAPABILITY),
            ]
        },
        after: || {
            vec![
                write("cap", 5000, 10),
                xattr("cap", "security.capability", CAPABILITY),
                Op::Owner(PathBuf::from("owned"), 5, 6),
                xattr("owned", "security.capability", CAPABILITY),
                Op::Owner(PathBuf::from("suid"), 7, 8),
                Op::Mode(PathBuf::from("suid"), 0o6755),
                write("lost", 0, 1),
            ]
        },
    },
    Case {
        name: "holes-and-ends",
        before: || {
            vec![
                Op::Make(PathBuf::from("h"), vec![1; 200_000]),
                Op::Make(PathBuf::from("small"), vec![2; 100]),
                Op::Make(PathBuf::from("cut"), vec![3; 100_001]),
                Op::Make(PathBuf::from("prealloc"), vec![4; 9000]),
                file("sparse"),
                Op::Truncate(PathBuf::from("sparse"), 10 << 30),
                write("sparse", 5 << 30, 5000),
            ]
        },
        after: || {
            vec![
                Op::Punch(PathBuf::from("h"), 8192, 100_000),
                write("h", 300_000, 10),
                write("small", 50_000, 1),
                Op::Truncate(PathBuf::from("cut"), 5001),
                Op::Allocate(PathBuf::from("prealloc"), 0, 1 << 20),
                Op::Punch(PathBuf::from("sparse"), 5 << 30, 4096),
            ]
        },
    },
    Case {
        name: "reflinks",
        before: || {
            vec![
                Op::Make(
                    PathBuf::from("a"),
                    (0..200_001u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect(),
                ),
                Op::Make(PathBuf::from("b"), vec![]),
                clone("a", 0, "b", 0, 200_001),
                Op::Sync,
                Op::Make(PathBuf::from("c"), vec![9; 50_000]),
                clone("a", 4096, "c", 8192, 16384),
                clone("a", 65536, "a", 0, 8192),
            ]
        },
        after: || {
            vec![
                Op::Make(PathBuf::from("d"), vec![]),
                clone("b", 0, "d", 0, 200_001),
                clone("b", 8192, "c", 65536, 40960),
                write("a", 70_000, 3),
                mv("a", "moved"),
                clone("moved", 131_072, "moved", 4096, 8192),
                rm("b"),
            ]
        },
    },
];
