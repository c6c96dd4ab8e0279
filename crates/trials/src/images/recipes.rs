//! Lists the btrfs images that are made, by the options of `mkfs.btrfs` and mount, and the scenes. Together they have
//! every form of one-device images. Called by `images`.

use super::scenes::{self, Scene};

/// The recipe of one image.
#[derive(Debug)]
pub(super) struct Recipe {
    pub(super) name: &'static str,
    pub(super) seed: u32,
    pub(super) megabytes: u32,
    pub(super) start: Start,
    /// Mounts, one after the other.
    pub(super) sessions: &'static [Session],
    /// Runs of `btrfstune` at the end.
    pub(super) tune: &'static [&'static [&'static str]],
}

/// The first state of an image.
#[derive(Debug)]
pub(super) enum Start {
    /// `mkfs.btrfs` with these options.
    Mkfs(&'static [&'static str]),
    /// A file of `images/`, for features that Debian's `mkfs.btrfs` lacks.
    Kept(&'static str),
}

/// One mount, and the changes made in it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) options: &'static str,
    /// Number of files of the random tree.
    pub(super) files: u32,
    pub(super) scenes: &'static [Scene],
}

const fn random_tree(files: u32) -> Session {
    Session { options: "rw", files, scenes: &[] }
}

const fn recipe(name: &'static str, seed: u32, start: Start, sessions: &'static [Session]) -> Recipe {
    Recipe { name, seed, megabytes: 512, start, sessions, tune: &[] }
}

/// Scenes of every image, beside its random tree.
const COMMON: &[Scene] = &[scenes::NODES, scenes::LAYOUTS, scenes::SMALL_XATTRS];

pub(super) const RECIPES: &[Recipe] = &[
    Recipe {
        megabytes: 1024,
        ..recipe(
            "crc32c-n16k",
            1,
            Start::Mkfs(&[]),
            &[
                random_tree(16_000),
                Session {
                    options: "rw",
                    files: 500,
                    scenes: &[
                        scenes::NODES,
                        scenes::LAYOUTS,
                        scenes::SMALL_XATTRS,
                        scenes::LARGE_XATTRS,
                        scenes::COLLISIONS,
                        scenes::FLAGS,
                    ],
                },
            ],
        )
    },
    recipe(
        "xxhash-n4k",
        2,
        Start::Mkfs(&["--csum", "xxhash", "-n", "4096"]),
        &[Session { options: "rw", files: 3000, scenes: COMMON }],
    ),
    recipe(
        "sha256-n8k",
        3,
        Start::Mkfs(&["--csum", "sha256", "-n", "8192"]),
        &[Session { options: "rw,max_inline=0", files: 3000, scenes: COMMON }],
    ),
    recipe(
        "blake2-n32k-single",
        4,
        Start::Mkfs(&["--csum", "blake2", "-n", "32768", "-m", "single"]),
        &[Session { options: "rw", files: 3000, scenes: COMMON }],
    ),
    recipe(
        "n64k-dup-data",
        5,
        Start::Mkfs(&["-n", "65536", "-d", "dup", "-m", "dup"]),
        &[Session { options: "rw", files: 3000, scenes: COMMON }, random_tree(1000)],
    ),
    recipe(
        "mixed-single",
        6,
        Start::Mkfs(&["--mixed", "-d", "single", "-m", "single"]),
        &[Session { options: "rw", files: 2000, scenes: COMMON }],
    ),
    recipe(
        "mixed-dup",
        7,
        Start::Mkfs(&["--mixed", "-d", "dup", "-m", "dup"]),
        &[Session { options: "rw", files: 2000, scenes: COMMON }],
    ),
    recipe(
        "extref-links",
        8,
        Start::Mkfs(&[]),
        &[Session { options: "rw", files: 1000, scenes: &[scenes::LINKS, scenes::COLLISIONS] }],
    ),
    recipe(
        "old-format-v1-cache",
        9,
        Start::Mkfs(&["-O", "^no-holes,^skinny-metadata,^extref", "-R", "^free-space-tree"]),
        &[
            Session { options: "rw,space_cache=v1", files: 3000, scenes: COMMON },
            Session { options: "rw,space_cache=v1", files: 500, scenes: &[scenes::SUBVOLUMES] },
        ],
    ),
    recipe(
        "holes-no-cache",
        10,
        Start::Mkfs(&["-O", "^no-holes", "-R", "^free-space-tree"]),
        &[Session { options: "rw,nospace_cache", files: 2000, scenes: COMMON }],
    ),
    recipe(
        "fst-bitmaps",
        11,
        Start::Mkfs(&[]),
        &[
            Session { options: "rw,max_inline=0", files: 1000, scenes: &[scenes::FRAGMENTS] },
            Session { options: "rw", files: 1000, scenes: &[scenes::LAYOUTS] },
        ],
    ),
    recipe(
        "block-group-tree",
        12,
        Start::Kept("block-group-tree.img.zst"),
        &[Session { options: "rw", files: 3000, scenes: &[scenes::NODES, scenes::LAYOUTS, scenes::SUBVOLUMES] }],
    ),
    Recipe {
        tune: &[&["-f", "-M", "c0ffee00-1111-4222-8333-444455556666"]],
        ..recipe(
            "metadata-uuid",
            13,
            Start::Mkfs(&[]),
            &[Session { options: "rw", files: 2000, scenes: &[scenes::SUBVOLUMES] }],
        )
    },
    recipe(
        "compress-zlib",
        14,
        Start::Mkfs(&[]),
        &[Session { options: "rw,compress-force=zlib:3", files: 2000, scenes: &[scenes::COMPRESSED, scenes::LAYOUTS] }],
    ),
    recipe(
        "compress-lzo",
        15,
        Start::Mkfs(&["-n", "32768"]),
        &[Session { options: "rw,compress-force=lzo", files: 2000, scenes: &[scenes::COMPRESSED, scenes::LAYOUTS] }],
    ),
    recipe(
        "compress-zstd",
        16,
        Start::Mkfs(&["-n", "4096", "--csum", "blake2"]),
        &[
            Session { options: "rw,compress=zstd:1", files: 2000, scenes: &[scenes::COMPRESSED] },
            Session { options: "rw,compress-force=zstd:12", files: 300, scenes: &[scenes::LAYOUTS] },
            Session { options: "rw,compress=lzo", files: 300, scenes: &[] },
            Session { options: "rw,compress=zlib", files: 300, scenes: &[] },
        ],
    ),
    recipe(
        "subvolumes",
        17,
        Start::Mkfs(&[]),
        &[Session { options: "rw", files: 2000, scenes: &[scenes::SUBVOLUMES, scenes::NODES] }],
    ),
    recipe(
        "quotas",
        18,
        Start::Mkfs(&[]),
        &[Session { options: "rw", files: 1000, scenes: &[scenes::QUOTAS, scenes::SUBVOLUMES] }],
    ),
];
