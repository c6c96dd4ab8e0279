//! Shell completions and manual pages, from the definition of the command line.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use clap_complete::Shell;

use crate::common::output::Output;

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
        Ok(std::io::Write::write_all(out, &text)?)
    }
}

impl Man {
    pub(crate) fn run(&self, program: clap::Command, out: &mut Output) -> Result<()> {
        match &self.dir {
            Some(dir) => write_pages(dir, program),
            None => Ok(clap_mangen::Man::new(program).render(out)?),
        }
    }
}

/// One page for each command: `spinney-subvolume-list.1`.
fn write_pages(dir: &Path, command: clap::Command) -> Result<()> {
    clap_mangen::generate_to(command, dir).with_context(|| dir.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::CommandFactory as _;

    #[test]
    fn every_command_gets_a_page() {
        let dir = tempfile::tempdir().unwrap();
        write_pages(dir.path(), Cli::command()).unwrap();
        for name in [
            "spinney",
            "spinney-ls",
            "spinney-subvolume-snapshot",
            "spinney-dump-tree",
        ] {
            let page = std::fs::read_to_string(dir.path().join(format!("{name}.1"))).unwrap();
            assert!(page.contains("Example"), "{name}");
        }
        let main = std::fs::read_to_string(dir.path().join("spinney.1")).unwrap();
        assert!(main.contains("Exit status"));
    }
}
