//! Boots a system with systemd in a container, and starts `spinney-mount@.service` there, as the guide describes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::system::System;
use super::uses::file_with;
use crate::system::{is_installed, run_command, text};

/// Longest time of the container, in seconds.
const SECONDS_MAX: &str = "240";

/// The work inside; its output is the result. The last line says that nothing failed.
const WORK: &str = "\
#!/bin/sh
exec > /result 2>&1
set -eux
systemctl start spinney-mount@site
systemctl is-active spinney-mount@site
findmnt --noheadings --output TARGET,FSTYPE /mnt/site
test \"$(cat /mnt/site/docs/page)\" = 'by mkfs.btrfs'
echo news > /mnt/site/news
systemd-analyze security spinney-mount@site --no-pager | tail -n 1
systemctl stop spinney-mount@site
test ! -e /mnt/site/docs
spinney cat /site.img news
spinney check --data /site.img > /dev/null
test \"$(systemctl show --property=Result --value spinney-mount@site)\" = success
systemctl start spinney-mount@site
systemctl kill --signal=KILL spinney-mount@site
sleep 2
test ! -e /mnt/site/docs
systemctl reset-failed spinney-mount@site
systemctl start spinney-mount@site
cat /mnt/site/news
echo 'unit: nothing failed'
";

/// Starts the work when the system has booted, and powers off.
const SERVICE: &str = "\
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=-/work
ExecStart=-/bin/sh -c 'journalctl --no-pager -u spinney-mount@site >> /journal 2>&1'
ExecStart=systemctl --no-block poweroff
[Install]
WantedBy=multi-user.target
";

/// Boots, works, and compares.
pub(super) fn start(sources: &Path, dir: &Path, suite: &str, packages: &Path) -> Result<()> {
    if !is_installed("systemd-nspawn") || !Path::new("/dev/fuse").exists() {
        println!("install: unit: SKIPPED: needs systemd-nspawn (systemd-container) and /dev/fuse");
        return Ok(());
    }
    let system = System::debian(dir, suite, "systemd", &["systemd", "systemd-sysv", "fuse3", "util-linux"])?;
    system.make_image()?;
    let program = file_with(packages, |name| name.starts_with("spinney_") && name.ends_with(".deb"));
    let package = system.take(&program.context("`cargo xtask deb` makes the packages")?)?;
    system.run(&["apt-get", "install", "-qq", "-y", &package])?;
    let root = system.root();
    // The unit of the sources, also where the package is older.
    let unit = "spinney-mount@.service";
    fs::copy(sources.join("packaging").join(unit), root.join("usr/lib/systemd/system").join(unit))?;
    for path in ["etc/spinney", "mnt/site"] {
        fs::create_dir_all(root.join(path))?;
    }
    fs::write(root.join("etc/spinney/site.conf"), "IMAGE=/site.img\nWHERE=/mnt/site\nOPTIONS=noatime\n")?;
    fs::write(root.join("work"), WORK)?;
    fs::set_permissions(root.join("work"), fs::Permissions::from_mode(0o755))?;
    fs::write(root.join("etc/systemd/system/work.service"), SERVICE)?;
    system.run(&["systemctl", "enable", "work"])?;
    let mut nspawn = Command::new("timeout");
    nspawn.args([
        "--kill-after=10",
        SECONDS_MAX,
        "systemd-nspawn",
        "--quiet",
        "--boot",
        "--register=no",
        "--keep-unit",
    ]);
    nspawn.args(["--machine=spinney-unit", "--bind=/dev/fuse", "--console=pipe", "--directory", text(root)?]);
    for device in ["/dev/loop-control", "/dev/loop0", "/dev/loop1", "/dev/loop2", "/dev/loop3"] {
        if Path::new(device).exists() {
            nspawn.arg(format!("--bind={device}"));
        }
    }
    let booted = run_command(&mut nspawn);
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap_or_default();
    let result = read("result");
    ensure!(
        result.trim_end().ends_with("unit: nothing failed"),
        "the work in the container failed: {result}\n{}\n{booted:?}",
        read("journal")
    );
    println!("install: unit: started, written, stopped and started again under systemd");
    Ok(())
}
