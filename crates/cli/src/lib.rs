//! The `spinney` program: file system images without root, mounted or not.
//!
//! `args` is the command line, one variant a command; `formats` has one row for each known format; `groups` lists the
//! commands in the help; `help` and `manual` lay out their texts. `commands` has the commands that every format has,
//! `btrfs` and `f2fs` those of one format. `mkfs` makes a file system of either format on a `target`, after
//! `existing_data` has found it empty. A command gets its arguments and an output for its report, and fails with an
//! `anyhow::Error`, which decides the exit status. `main` calls `run`.

#![cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "some code serves mounts, which need Linux"))]

mod args;
mod btrfs;
mod build;
mod check;
mod check_report;
mod commands;
mod contents;
mod convert;
mod delivery;
mod existing_data;
mod f2fs;
mod formats;
mod groups;
mod help;
mod job;
mod late_super;
mod make;
mod manual;
mod mkfs;
mod other_names;
mod target;
mod version;

pub use commands::picture;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;

use crate::commands::failure::{self, CommandEnded, Status};
use crate::commands::format;
use crate::commands::magic::Look;
use crate::commands::output::{self, Output};
use crate::commands::short_form;
use check_report::Ended;
use formats::FACES;
use other_names::Rewritten;
use spinney::blockdev::Locator;

/// Many threads make and drop small things while images are written; the allocator of the C
/// library takes an eighth of that time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the program with the arguments of the process.
#[must_use]
pub fn run() -> ExitCode {
    run_with(std::env::args_os().collect())
}

/// Runs the program with these words, of which the first is its name: for a benchmark, which runs commands in a process
/// of its own. A command that starts the program anew, such as `mount`, starts the benchmark instead.
#[must_use]
pub fn run_with(words: Vec<OsString>) -> ExitCode {
    format::know(FACES);
    spinney::add_remote_devices();
    match other_names::rewrite(&words) {
        None => run_words(without_helper(words)),
        Some(rewritten) => {
            output::speak_as(words.first().map(OsString::as_os_str).unwrap_or_default());
            // These programs have one status for all failures.
            if run_as_other(rewritten) == ExitCode::SUCCESS { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

/// The words as the program takes them, also those of a helper of `mount(8)`.
#[cfg(target_os = "linux")]
fn without_helper(words: Vec<OsString>) -> Vec<OsString> {
    commands::mount::helper::rewrite(words, args::is_command)
}

#[cfg(not(target_os = "linux"))]
fn without_helper(words: Vec<OsString>) -> Vec<OsString> {
    words
}

fn run_as_other(rewritten: Rewritten) -> ExitCode {
    match rewritten {
        Rewritten::Words(words) => run_words(words),
        Rewritten::Text(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Rewritten::Wrong(text) => {
            output::warn(&text);
            ExitCode::FAILURE
        }
    }
}

fn run_words(words: Vec<OsString>) -> ExitCode {
    // Their exit statuses are those of fsck(8).
    let is_fsck = words.get(1).is_some_and(|word| word == "check" || word == "repair");
    let mut program = args::program_for(&words);
    let words = match short_form::lengthen(words, &program) {
        Ok(words) => words,
        Err(error) => {
            output::warn(&failure::one_line(&error));
            return ExitCode::from(if is_fsck { Ended::USAGE } else { failure::status_of(&error).code() });
        }
    };
    let command = match args::parse(&mut program, &words) {
        Ok(command) => command,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return help(error, words),
        Err(error) if error.use_stderr() && is_fsck => {
            let _ = error.print();
            return ExitCode::from(Ended::USAGE);
        }
        Err(error) => return usage(&error),
    };
    let mut out = Output::new();
    let result = command.run(&mut out).and_then(|()| out.finish());
    match result {
        Ok(()) => ExitCode::from(Status::Done.code()),
        Err(error) if failure::is_broken_pipe(&error) => ExitCode::from(Status::Done.code()),
        Err(error) => {
            if let Some(CommandEnded(status)) = error.downcast_ref() {
                return ExitCode::from(*status);
            }
            output::warn(&failure::one_line(&error));
            advise(&error, &words);
            let ended = error.downcast_ref::<Ended>().map(Ended::status);
            let other = || if is_fsck { Ended::FAILED } else { failure::status_of(&error).code() };
            ExitCode::from(ended.unwrap_or_else(other))
        }
    }
}

/// Names the next command to run if the image is damaged, and is or may be of a known format.
fn advise(error: &anyhow::Error, words: &[OsString]) {
    if failure::is_host_full(error) {
        let image = words.iter().skip(2).filter_map(|word| Locator::parse(word).ok());
        let image = image.filter_map(|image| image.path().map(Path::to_owned)).find(|path| path.is_file());
        if let Some(image) = image {
            let image = image.display();
            output::warn(&format!(
                "the host file system that holds {image} is full (`df {image}`); the image itself has \
                 room"
            ));
        }
        return;
    }
    // Of these the sources are damaged, not an image that could be checked.
    let makes = |word: &OsString| ["mkfs", "build", "convert"].iter().any(|name| word == name);
    let is_of_source =
        error.chain().any(|cause| cause.is::<spinney::layers::Error>() || cause.is::<spinney::archive::Error>());
    let is_about_it =
        words.get(1).is_some_and(|word| word == "check" || word == "rescue" || makes(word)) || is_of_source;
    if is_about_it || failure::status_of(error) != Status::Corrupt {
        return;
    }
    let format_of = |word: &OsString| {
        let part = Locator::parse(word).ok()?;
        let is_image = std::fs::metadata(part.path()?).is_ok_and(|found| !found.is_dir() && found.len() > 0);
        if !is_image {
            return None;
        }
        match format::recognise(&part) {
            // The damaged image may be of the first format.
            Ok(None) if is_unknown(&part) => spinney::formats().into_iter().next(),
            Ok(found) => found.and_then(spinney::format_named),
            Err(_) => None,
        }
    };
    for word in words.iter().skip(2) {
        let image = word.display();
        let Some(format) = format_of(word) else { continue };
        let rescue = match format::face(format).is_rescued {
            true => format!("; `spinney rescue get {image} DIRECTORY` copies what can be read"),
            false => String::new(),
        };
        output::warn(&format!("`spinney check {image}` lists the damage{rescue}"));
        return;
    }
}

fn is_unknown(part: &Locator) -> bool {
    matches!(format::look(part), Ok(Look::Unknown | Look::Empty))
}

/// Shows the help that was asked for, laid out for the terminal.
fn help(error: clap::Error, words: Vec<OsString>) -> ExitCode {
    let program = help::laid_out(args::program_for(&words), help::width());
    usage(&program.try_get_matches_from(words).err().unwrap_or(error))
}

/// Asking for help or the version is no error, nor is a reader that closes the pipe while they are printed.
fn usage(error: &clap::Error) -> ExitCode {
    if error.use_stderr() {
        let _ = error.print();
        return ExitCode::from(Status::Usage.code());
    }
    let closed = output::check_open().map_err(anyhow::Error::from);
    let printed = closed.and_then(|()| {
        let printed = error.print().and_then(|()| std::io::stdout().flush());
        printed.context("the standard output")
    });
    match printed {
        Err(failed) if !failure::is_broken_pipe(&failed) => {
            output::warn(&failure::one_line(&failed));
            ExitCode::from(failure::status_of(&failed).code())
        }
        _ => ExitCode::from(Status::Done.code()),
    }
}
