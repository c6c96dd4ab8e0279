//! Writes the list of commands in `spinney --help`, grouped by task and short enough for one screen. `args` passes it
//! to clap.

/// A heading, and its rows: names of commands that belong together, and one line about them.
type Group = (&'static str, &'static [(&'static str, &'static str)]);

const GROUPS: &[Group] = &[
    (
        "Make and look",
        &[
            ("mkfs, build, convert", "make an image; a disk with partitions; change its form"),
            ("info, label", "format, size, features, UUID; read or set the label"),
            ("ls, tree, stat", "list names; list as a tree; show all about one name"),
        ],
    ),
    (
        "Files",
        &[
            ("cat", "print files"),
            ("get, put", "copy out of an image or mount; copy into one"),
            ("cp", "copy within and between images, mounts and this machine"),
            ("mv, ln, rm, mkdir", "rename, link, remove, make directories"),
        ],
    ),
    (
        "Mount and serve",
        &[
            ("mount, umount", "mount an image for all programs, without root; unmount it"),
            ("serve", "serve an image as a disk or to browsers: NBD, HTTP"),
        ],
    ),
    (
        "Subvolumes and backup",
        &[
            ("subvolume", "create, snapshot, delete, list, make read-only"),
            ("diff", "show the paths that differ between two subvolumes"),
            ("fork, run", "try changes in a copy, merge them; run a command in one"),
            ("image", "keep container images, equal layers once; fork them"),
            ("send, receive", "write a snapshot as a stream; build a subvolume from one"),
            ("backup, restore", "keep snapshots elsewhere as differences; bring one back"),
        ],
    ),
    (
        "Space",
        &[
            ("usage, du", "show what takes space; show how much of it is shared"),
            ("resize, trim", "grow or shrink; give free space back to the host"),
            ("balance", "rewrite block groups, convert them to another profile"),
            ("device", "add, remove, replace devices; bring one up to date"),
            ("defrag, dedupe", "rewrite and compress files; let equal files share extents"),
            ("quota, qgroup", "turn quotas on and off; show and limit groups"),
        ],
    ),
    (
        "Health",
        &[
            ("check, scrub", "find inconsistencies; verify and repair every copy"),
            ("repair", "plan a repair; apply it, and undo it"),
            ("rescue", "copy files out of a damaged image; find deleted ones"),
            ("generations", "list the earlier commits that can still be read"),
            ("verify-crash", "test the states that power cuts leave of a workload"),
        ],
    ),
    (
        "Inside",
        &[
            ("dump, map", "print on-disk structures; draw the layout"),
            ("trace", "record and draw the requests to the device"),
            ("version, completions", "print the version; print shell completions"),
            ("man, install-links", "print the manual; make links such as mkfs.btrfs"),
        ],
    ),
];

/// Width of the column of names.
const NAMES_WIDTH: usize = 21;

/// The template of the program's help, for clap.
pub(crate) fn help_template() -> String {
    let mut text = String::from("{about-with-newline}\n{usage-heading} {usage}\n\n");
    for (heading, rows) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for (names, about) in *rows {
            text.push_str(&format!("  {names:NAMES_WIDTH$}{about}\n"));
        }
    }
    text.push_str("\n{options}{after-help}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines that a terminal window shows.
    const LINES_MAX: usize = 60;

    #[test]
    fn every_command_stands_in_one_group() {
        let mut listed: Vec<&str> =
            GROUPS.iter().flat_map(|(_, rows)| *rows).flat_map(|(names, _)| names.split(", ")).collect();
        listed.sort_unstable();
        let program = crate::args::program();
        let mut known: Vec<&str> =
            program.get_subcommands().filter(|command| !command.is_hide_set()).map(clap::Command::get_name).collect();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn the_help_fits_one_screen_and_names_both_formats() {
        for width in [80, 100] {
            let mut program = crate::help::laid_out(crate::args::program(), width);
            for help in [program.render_help().to_string(), program.render_long_help().to_string()] {
                assert!(help.lines().count() <= LINES_MAX, "{}: {help}", help.lines().count());
                assert!(help.lines().all(|line| line.chars().count() <= width), "{help}");
                assert!(help.contains("btrfs and f2fs"), "{help}");
                for (heading, _) in GROUPS {
                    assert!(help.contains(&format!("\n{heading}:\n")), "{help}");
                }
            }
        }
    }
}
