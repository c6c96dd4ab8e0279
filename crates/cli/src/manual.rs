//! Writes shell completions and manual pages, from the definition of the command line: `spinney completions` and
//! `spinney man`. Called by `args`; `cargo xtask deb` packages the results.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::Shell;
use clap_mangen::roff::Roff;

use crate::commands::output::Output;
use crate::help;

/// Print shell completions
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  spinney completions bash > /etc/bash_completion.d/spinney")]
pub(crate) struct Completions {
    /// Shell to complete in
    shell: Shell,
}

/// Print the manual, or write a page for every command
#[derive(Debug, Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  spinney man | man -l -\n",
    "  spinney man --dir /usr/share/man/man1"
))]
pub(crate) struct Man {
    /// Write one page for each command into DIR
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn run(&self, mut program: clap::Command, out: &mut Output) -> Result<()> {
        let mut text = Vec::new();
        clap_complete::generate(self.shell, &mut program, "spinney", &mut text);
        Ok(out.write_all(&text)?)
    }
}

impl Man {
    pub(crate) fn run(&self, program: clap::Command, out: &mut Output) -> Result<()> {
        match &self.dir {
            Some(dir) => write_pages(dir, program),
            None => Ok(out.write_all(&page(program)?)?),
        }
    }
}

/// One page for each command: `spinney-subvolume-list.1`.
fn write_pages(dir: &Path, command: clap::Command) -> Result<()> {
    let mut program = command.disable_help_subcommand(true);
    program.build();
    let mut todo = vec![program];
    while let Some(command) = todo.pop() {
        todo.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        let path = dir.join(clap_mangen::Man::new(command.clone()).get_filename());
        std::fs::write(&path, page(command)?).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// The page of a command.
fn page(command: clap::Command) -> Result<Vec<u8>> {
    let text = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
    let (has_subcommands, mut out) = (command.has_subcommands(), Vec::new());
    let source = format!("spinney {}", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command).source(source).manual("Spinney");
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if has_subcommands {
        man.render_subcommands_section(&mut out)?;
    }
    let mut rest = Roff::new();
    help::render(&text.unwrap_or_default(), &mut rest);
    rest.to_writer(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;

    #[test]
    fn every_command_gets_a_page() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path(), args::for_manual()).unwrap();
        for name in ["spinney", "spinney-ls", "spinney-subvolume-snapshot", "spinney-dump-tree"] {
            let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
            assert!(page.contains("Example"), "{name}");
        }
        let main = std::fs::read_to_string(dir.path().join("spinney.1")).unwrap();
        assert!(main.contains("Exit status"));
    }
}
