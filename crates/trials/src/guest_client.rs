//! Boots a guest that uses a file system which this machine serves to it: by NFS, by virtio-fs. The guest runs
//! `suites/guest-files.sh` and a script of the protocol. Called by `nfs_guest` and `virtiofs_guest`.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Result, ensure};

/// Programs that the guest gets, where they are here.
const PROGRAMS: [&str; 7] = [
    "/usr/bin/setpriv",
    "/usr/bin/git",
    "/usr/bin/sqlite3",
    "/usr/bin/setfattr",
    "/usr/bin/getfattr",
    "/usr/bin/setfacl",
    "/usr/bin/flock",
];

/// A guest, and what it is told.
pub(crate) struct Client<'a> {
    /// The source tree.
    pub(crate) root: &'a Path,
    /// Directory for the guest's kernel.
    pub(crate) cache: &'a Path,
    /// Directory for what it leaves.
    pub(crate) results: &'a Path,
    /// Longest time, in seconds.
    pub(crate) seconds: u64,
    /// The name in front of what it says.
    pub(crate) name: &'static str,
    /// The script of the protocol, in the directory of suites.
    pub(crate) suite: &'static str,
    /// Variables of the script.
    pub(crate) variables: String,
    /// Further options of `suites/f2fs-guest/run.sh`.
    pub(crate) options: Vec<OsString>,
}

impl Client<'_> {
    /// Boots it, and waits for its end.
    ///
    /// # Errors
    /// It failed, or took too long.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self.start()?.wait()?;
        ensure!(status.success(), "the guest: {status}");
        Ok(())
    }

    /// Boots it. SIGTERM cuts its power.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn start(&self) -> Result<Child> {
        let suites = self.root.join("crates/trials/suites");
        let files = std::fs::read_to_string(suites.join("guest-files.sh"))?;
        let own = std::fs::read_to_string(suites.join(self.suite))?;
        let mut command = Command::new(suites.join("f2fs-guest/run.sh"));
        command.args(["--seconds", &self.seconds.to_string(), "--cache"]).arg(self.cache).args(&self.options);
        let pjdfstest = std::env::home_dir().map(|home| home.join(".cargo/bin/pjdfstest"));
        let programs = PROGRAMS.iter().map(|program| Path::new(program).to_owned()).chain(pjdfstest);
        for program in programs.filter(|program| program.exists()) {
            command.arg("--program").arg(program);
        }
        let script = format!("NAME={} HERE=$PWD {}\n{files}\n{own}", self.name, self.variables);
        command.arg("--results").arg(self.results).args(["--", "sh", "-c", &script]);
        Ok(command.stdin(Stdio::null()).spawn()?)
    }
}

/// The lines of the guest on its console.
pub(crate) fn said<'a>(console: &'a str, name: &str) -> Vec<&'a str> {
    let mark = format!("{name}: ");
    console.lines().filter(|line| line.contains(&mark)).collect()
}
