//! Defines the command line with clap: one variant of `Command` for each command. `run` in `lib` parses with it and
//! runs the command.

use std::ffi::{OsStr, OsString};

use anyhow::Result;
use clap::error::ErrorKind;

#[cfg(not(target_os = "linux"))]
use crate::commands::elsewhere::{Attend, Mount, Run, Serve, Umount};
use crate::commands::failure::{Failure, STATUS_HELP};
use crate::commands::output::Output;
use crate::commands::short_form;
use crate::{btrfs, check, groups, manual, mkfs, version};
#[cfg(target_os = "linux")]
use crate::{
    btrfs::run::Run,
    commands::{
        mount::{Mount, Umount, attendant::Attend},
        serve::Serve,
    },
};

/// The program with all its commands.
pub(crate) fn program() -> clap::Command {
    Command::NAMES.iter().copied().filter_map(Command::definition).fold(without_commands(), clap::Command::subcommand)
}

/// The program with the one command that `words` name, or with all where they name none: to define all takes longer
/// than many a command takes to run.
pub(crate) fn program_for(words: &[OsString]) -> clap::Command {
    let named = words.get(1).and_then(|word| word.to_str()).and_then(Command::definition);
    named.map_or_else(program, |command| without_commands().subcommand(command))
}

fn without_commands() -> clap::Command {
    clap::Command::new("spinney")
        .version(env!("CARGO_PKG_VERSION"))
        .propagate_version(true)
        .about("Make, read, change and mount btrfs and f2fs images, without root")
        .disable_help_subcommand(true)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .help_template(groups::help_template())
        .after_help(concat!(
            "Examples:\n",
            "  spinney mkfs --rootdir ./site site.img     make an image of a directory\n",
            "  spinney mount site.img ./mnt               use it with all programs\n",
            "  spinney cp -r a.img:/docs ./mnt            IMAGE:/PATH, or below a mount\n",
            "  spinney ls 'disk.img?offset=1048576'       a partition of a disk image\n",
            "\n",
            "`spinney COMMAND --help` has the options and examples of a command, `spinney man`\n",
            "the manual, with the form of reports in JSON.\n",
            "\n",
            "Exit status:\n",
            "  0 done, 1 refused by the file system, 2 usage, 3 damaged or unknown image,\n",
            "  4 unsupported, 5 no space, 6 reading or writing failed, 7 in use"
        ))
}

/// The command that `words` name, with its arguments; `program` is defined by [`program_for`] these words.
///
/// # Errors
/// Those of clap, also for `--help` and `--version`.
pub(crate) fn parse(program: &mut clap::Command, words: &[OsString]) -> Result<Command, clap::Error> {
    let found = program.try_get_matches_from_mut(words)?;
    let command = found.subcommand().and_then(|(name, found)| Command::from_matches(name, found));
    let missing = || Err(program.error(ErrorKind::MissingSubcommand, "no command is given"));
    command.unwrap_or_else(missing).map_err(|error| error.format(program))
}

/// The program as the manual describes it: with the texts that every command refers to.
pub(crate) fn for_manual() -> clap::Command {
    program().after_long_help(MANUAL.as_str())
}

static MANUAL: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
    format!(
        "Examples:
  spinney mkfs --rootdir ./site site.img     make an image of a directory
  spinney ls -l site.img /                   list it
  spinney put site.img notes.txt /           copy a file into it
  spinney get site.img / ./copy              copy everything out
  spinney mount site.img ./mnt               use it with all programs
  spinney ls 'disk.img?offset=1048576'       a partition of a disk image

Images:
  IMAGE is a file or an unmounted block device. IMAGE?offset=N is what starts at byte N
  of it, for instance a partition. While a command changes an image, it is locked. A command on
  an image that you have mounted uses the mount.

Paths:
  IMAGE:/PATH is a path in an image; a path below a mount is a path in the mounted image. IMAGE,
  or a directory of a mount, may also come first, followed by paths in it. If a file of that
  whole name exists on this machine, it is meant; a name that begins with ./ always is one.

JSON:
  With --json a command reports one JSON object. Names are strings; a name that is not
  UTF-8 has replacement characters there and its bytes, in hex, in a second field: name
  and name_hex, path and path_hex, target and target_hex. Times are objects of sec
  (since 1970-01-01 UTC) and nsec. Sizes are in bytes.

{STATUS_HELP}"
    )
});

/// True for the name of a command.
pub(crate) fn is_command(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| Command::NAMES.contains(&name))
}

/// Declares the commands: each is a variant, the type that clap parses for it, and its name. A derived definition would
/// define all of them for each run.
macro_rules! commands {
    ($($variant:ident($parsed:ty), $name:literal;)*) => {
        /// The commands.
        #[derive(Debug)]
        pub(crate) enum Command {
            $($variant($parsed),)*
        }

        impl Command {
            const NAMES: &[&str] = &[$($name),*];

            /// The definition of the command `name`; `None` for any other word.
            fn definition(name: &str) -> Option<clap::Command> {
                match name {
                    $($name => Some(<$parsed as clap::Args>::augment_args(clap::Command::new($name))),)*
                    _ => None,
                }
            }

            fn from_matches(name: &str, found: &clap::ArgMatches) -> Option<Result<Self, clap::Error>> {
                match name {
                    $($name => Some(<$parsed as clap::FromArgMatches>::from_arg_matches(found).map(Self::$variant)),)*
                    _ => None,
                }
            }
        }
    };
}

commands! {
    Mkfs(Box<mkfs::Mkfs>), "mkfs";
    Build(crate::build::Build), "build";
    Convert(crate::convert::Convert), "convert";
    InstallLinks(crate::other_names::InstallLinks), "install-links";
    Info(crate::commands::info::Info), "info";
    Ls(crate::commands::ls::Ls), "ls";
    Tree(crate::commands::tree::Tree), "tree";
    Cat(crate::commands::cat::Cat), "cat";
    Stat(crate::commands::stat::Stat), "stat";
    Get(crate::commands::get::Get), "get";
    Put(crate::commands::put::Put), "put";
    Mkdir(crate::commands::mkdir::Mkdir), "mkdir";
    Rm(crate::commands::rm::Rm), "rm";
    Mv(crate::commands::mv::Mv), "mv";
    Cp(crate::commands::cp::Cp), "cp";
    Ln(crate::commands::ln::Ln), "ln";
    Defrag(crate::commands::defrag::Defrag), "defrag";
    Dedupe(crate::commands::dedupe::Dedupe), "dedupe";
    Trim(crate::commands::trim::Trim), "trim";
    Trace(crate::commands::trace::Trace), "trace";
    Mount(Mount), "mount";
    Umount(Umount), "umount";
    Serve(Serve), "serve";
    Attend(Attend), "attend";
    Subvolume(btrfs::subvolume::Subvolume), "subvolume";
    Generations(btrfs::generations::Generations), "generations";
    Receive(btrfs::receive::Receive), "receive";
    Label(btrfs::label::Label), "label";
    Usage(btrfs::usage::Usage), "usage";
    Du(btrfs::du::Du), "du";
    Diff(btrfs::diff::Diff), "diff";
    Fork(btrfs::fork::Fork), "fork";
    Run(Run), "run";
    Image(btrfs::image::Image), "image";
    Send(btrfs::send::Send), "send";
    Backup(btrfs::backup::Backup), "backup";
    Restore(btrfs::backup::Restore), "restore";
    Resize(btrfs::resize::Resize), "resize";
    Device(btrfs::device::Device), "device";
    Balance(btrfs::balance::Balance), "balance";
    Scrub(btrfs::scrub::Scrub), "scrub";
    Quota(btrfs::quota::Quota), "quota";
    Qgroup(btrfs::qgroup::Qgroup), "qgroup";
    Map(btrfs::map::Map), "map";
    Dump(btrfs::dump::Dump), "dump";
    Check(check::Check), "check";
    Repair(btrfs::repair::Repair), "repair";
    Rescue(btrfs::rescue::Rescue), "rescue";
    VerifyCrash(btrfs::verify_crash::VerifyCrash), "verify-crash";
    Version(version::Version), "version";
    Completions(manual::Completions), "completions";
    Man(manual::Man), "man";
}

impl Command {
    /// Runs the command.
    pub(crate) fn run(&self, out: &mut Output) -> Result<()> {
        match self {
            Self::Mkfs(command) => command.run(out),
            Self::Build(command) => command.run(out),
            Self::Convert(command) => command.run(out),
            Self::InstallLinks(command) => command.run(out),
            Self::Info(command) => command.run(out),
            Self::Ls(command) => command.run(out),
            Self::Tree(command) => command.run(out),
            Self::Cat(command) => command.run(out),
            Self::Stat(command) => command.run(out),
            Self::Get(command) => command.run(out),
            Self::Put(command) => command.run(out),
            Self::Mkdir(command) => command.run(out),
            Self::Rm(command) => command.run(out),
            Self::Mv(command) => command.run(out),
            Self::Cp(command) => command.run(out),
            Self::Ln(command) => command.run(out),
            Self::Defrag(command) => command.run(out),
            Self::Dedupe(command) => command.run(out),
            Self::Trim(command) => command.run(out),
            Self::Trace(command) => command.run(out, run_words),
            Self::Mount(command) => command.run(out),
            Self::Umount(command) => command.run(),
            Self::Serve(command) => command.run(out),
            Self::Attend(command) => command.run(),
            Self::Subvolume(command) => command.run(out),
            Self::Generations(command) => command.run(out),
            Self::Receive(command) => command.run(out),
            Self::Label(command) => command.run(out),
            Self::Usage(command) => command.run(out),
            Self::Du(command) => command.run(out),
            Self::Diff(command) => command.run(out),
            Self::Fork(command) => command.run(out),
            Self::Run(command) => command.run(),
            Self::Image(command) => command.run(out),
            Self::Send(command) => command.run(),
            Self::Backup(command) => command.run(out),
            Self::Restore(command) => command.run(out),
            Self::Resize(command) => command.run(out),
            Self::Device(command) => command.run(out),
            Self::Balance(command) => command.run(out),
            Self::Scrub(command) => command.run(out),
            Self::Quota(command) => command.run(out),
            Self::Qgroup(command) => command.run(out),
            Self::Map(command) => command.run(out),
            Self::Dump(command) => command.run(out),
            Self::Check(command) => command.run(out),
            Self::Repair(command) => command.run(out),
            Self::Rescue(command) => command.run(out),
            Self::VerifyCrash(command) => command.run(out),
            Self::Version(command) => command.run(out),
            Self::Completions(command) => command.run(program(), out),
            Self::Man(command) => command.run(for_manual(), out),
        }
    }
}

/// Runs a command given as words, while its requests are recorded.
fn run_words(words: &[OsString], out: &mut Output) -> Result<()> {
    let name = std::iter::once(OsString::from("spinney"));
    let words: Vec<OsString> = name.chain(words.iter().cloned()).collect();
    let mut program = program_for(&words);
    let words = short_form::lengthen(words, &program)?;
    let parsed = parse(&mut program, &words);
    match parsed.map_err(|error| Failure::usage(error.to_string().trim_start_matches("error: ").trim_end()))? {
        Command::Mount(_) | Command::Umount(_) => Err(Failure::usage("a mount is recorded with -o trace=FILE").into()),
        Command::Trace(_) => Err(Failure::usage("a recording cannot be recorded").into()),
        command => command.run(out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, clap::Error> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        parse(&mut program_for(&words), &words)
    }

    #[test]
    fn the_definition_is_sound() {
        program().debug_assert();
    }

    #[test]
    fn every_command_has_an_example_and_a_description() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            assert!(command.get_about().is_some(), "{path}: no description");
            if command.has_subcommands() {
                for sub in command.get_subcommands() {
                    check(sub, &path);
                }
            }
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Example"), "{path}: no example in its help");
            let example = path.trim_start();
            let first = example.split(' ').next().unwrap();
            assert!(help.contains(&format!("  {first} ")), "{path}: the example is of another command");
            for argument in command.get_arguments().filter(|a| a.get_id() != "help") {
                assert!(argument.get_help().is_some(), "{path}: {} has no help", argument.get_id());
            }
        }
        let mut command = program();
        command.build();
        check(&command, "");
    }

    /// Commands without `--json`, and the reason: they report nothing, or their output has another form.
    const WITHOUT_JSON: &[(&str, &str)] = &[
        ("cat", "its output is the contents of the files"),
        ("mount", "nothing is made but the mount, which findmnt --json knows"),
        ("umount", "nothing is made"),
        ("image mount", "nothing is made but the mount, which findmnt --json knows"),
        ("serve nbd", "nothing is made; it prints what is served and how it is used"),
        ("serve http", "nothing is made; it prints where browsers find the files"),
        ("serve nfs", "nothing is made; it prints how clients mount what is served"),
        ("serve virtiofs", "nothing is made; it prints how a virtual machine mounts what is served"),
        ("device seed", "nothing is made; it prints what the volume is now"),
        ("attend", "internal"),
        ("send", "its output is a stream"),
        ("fork diff", "its output is a patch"),
        ("run", "its output is that of the command; fork status --json tells the changes"),
        ("trace record", "its output is that of the command it runs; trace plot --json tells the numbers"),
        ("completions", "its output is a script"),
        ("man", "its output is a page"),
        ("convert", "its output is the image"),
        ("install-links", "it prints the links, one a line"),
    ];

    #[test]
    fn every_command_reports_as_json_and_says_what() {
        fn check(command: &clap::Command, path: &str, found: &mut usize) {
            for sub in command.get_subcommands() {
                check(sub, &format!("{path} {}", sub.get_name()), found);
            }
            if command.has_subcommands() {
                return;
            }
            let name = path.trim_start();
            let json = command.get_arguments().find(|argument| argument.get_id() == "json");
            match (json, WITHOUT_JSON.iter().find(|(without, _)| *without == name)) {
                (Some(_), None) => {}
                (None, Some(_)) => *found += 1,
                (Some(_), Some(_)) => panic!("{name} has --json and is listed as one without"),
                (None, None) => panic!("{name} has no --json, and no reason"),
            }
            let help = json.and_then(clap::Arg::get_help).map(ToString::to_string);
            let says_what = |help: String| help.contains("JSON") && (help.contains('{') || help.contains('`'));
            assert!(help.is_none_or(says_what), "{name}: its help does not say what the report has");
        }
        let mut found = 0;
        check(&program(), "", &mut found);
        assert_eq!(found, WITHOUT_JSON.len());
    }

    #[test]
    fn an_image_comes_first() {
        for line in [
            "spinney ls a.img",
            "spinney ls -l a.img /etc",
            "spinney cat a.img /a /b",
            "spinney get a.img /a /b out",
            "spinney put a.img x y /",
            "spinney mkdir -p a.img /x/y",
            "spinney mv a.img /a /b",
            "spinney ln -s a.img target /link",
            "spinney subvolume snapshot -r a.img / /snap",
            "spinney mount a.img dir -o ro,noatime --foreground -v",
            "spinney mount -o ro -- a.img dir",
            "spinney dump tree a.img fs",
        ] {
            parsed(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        assert!(parsed("spinney ls").is_err());
        assert!(parsed("spinney get a.img").is_err());
    }
}
