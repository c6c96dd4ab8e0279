//! Builds a whole disk from a description (an ESP, and a btrfs with three subvolumes), and has a kernel start the
//! system on it. Called by `cargo trials disk-boot`.
//!
//! `sfdisk` verifies the table, and the kernel of this machine mounts each subvolume if that has btrfs and this is
//! root. A guest (`suites/f2fs-guest/run.sh`) starts `/sbin/init` of the subvolume that is mounted by default; that
//! reads a file of each subvolume, writes one, and reports on the console. Needs the programs that `run.sh` needs.

use crate::system::{attach_part, is_root, run as run_program};
use anyhow::{Context as _, Result, ensure};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const SECTOR_BYTES: u64 = 512;

/// The last line of `/sbin/init`.
const BOOTED: &str = "disk-boot: the system on the disk has started";

const INIT: &str = "#!/bin/busybox sh
busybox mount -o subvol=@home,noatime /dev/vdb2 /home
[ \"$(busybox cat /etc/name)\" = system ] || echo 'disk-boot: another /etc/name'
[ \"$(busybox cat /home/ada/note)\" = kept ] || echo 'disk-boot: another /home/ada/note'
[ \"$(busybox cat /usr/tool)\" = tool ] || echo 'disk-boot: another /usr/tool'
busybox touch /usr/new 2> /dev/null && echo 'disk-boot: /usr can be written'
echo written > /home/ada/new && busybox sync || echo 'disk-boot: /home cannot be written'
busybox sha256sum /bin/busybox > /dev/null || echo 'disk-boot: /bin/busybox cannot be read'
echo 'disk-boot: the system on the disk has started'
busybox sleep 1000
";

const SPEC: &str = r#"
[disk]
size = "auto"
[[partition]]
name = "esp"
type = "esp"
content = "esp.img"
[[partition]]
name = "root"
type = "root-x86-64"
format = "btrfs"
label = "system"
size = "300M"
sources = ["tree"]
all-root = true
subvolumes = [{ path = "@", default = true }, { path = "@/usr", mode = "ro" }, { path = "@home" }]
options = { compress = "zstd:3" }
verity = ["@/bin/*"]
[output]
file = "disk.img"
"#;

/// Options of the trial.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for the guest's kernel
    #[arg(long, default_value = "target/f2fs-guest")]
    cache: PathBuf,
    /// Directory for the disk
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Longest time of the boot, in seconds.
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// The `spinney` program, if not target/release/spinney.
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Builds the disk and starts it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<ExitCode> {
    let folder = tempfile::Builder::new().prefix("spinney-boot-").tempdir_in(&options.dir)?;
    let dir = folder.path();
    tree(dir)?;
    let program = options.program.clone().unwrap_or_else(|| root.join("target/release/spinney"));
    let spec = dir.join("disk.toml");
    std::fs::write(&spec, SPEC)?;
    let plan = run_program(&program.to_string_lossy(), &[Path::new("build"), &spec])?;
    println!("{}", plan.trim_end());
    let disk = dir.join("disk.img");
    let verified = run_program("sfdisk", &[Path::new("--verify"), &disk])?;
    ensure!(verified.contains("No errors detected"), "sfdisk: {verified}");
    mount_each(&disk, dir)?;
    boot(root, options, &disk, &dir.join("results"))?;
    println!("disk-boot: a kernel has started the system on the disk");
    Ok(ExitCode::SUCCESS)
}

/// The contents of the file system, and an ESP.
fn tree(dir: &Path) -> Result<()> {
    let system = dir.join("tree/@");
    for name in ["bin", "sbin", "etc", "dev", "proc", "sys", "home", "usr"] {
        std::fs::create_dir_all(system.join(name))?;
    }
    std::fs::create_dir_all(dir.join("tree/@home/ada"))?;
    let busybox = run_program("sh", &["-c", "command -v busybox"]).context("busybox-static")?;
    std::fs::copy(busybox.trim(), system.join("bin/busybox"))?;
    symlink("busybox", system.join("bin/sh"))?;
    let init = system.join("sbin/init");
    std::fs::write(&init, INIT)?;
    std::fs::set_permissions(&init, std::fs::Permissions::from_mode(0o755))?;
    std::fs::write(system.join("etc/name"), "system\n")?;
    std::fs::write(system.join("usr/tool"), "tool\n")?;
    std::fs::write(dir.join("tree/@home/ada/note"), "kept\n")?;
    // Passed through as it is.
    let esp = dir.join("esp.img");
    std::fs::File::create(&esp)?.set_len(8 << 20)?;
    if run_program("mkfs.vfat", &[&esp]).is_err() {
        println!("    (mkfs.vfat is not installed: the ESP is empty)");
    }
    Ok(())
}

/// Has the kernel of this machine mount each subvolume, from a loop device on the second partition.
fn mount_each(disk: &Path, dir: &Path) -> Result<()> {
    if !is_root() {
        println!("    (not root: nothing is mounted here)");
        return Ok(());
    }
    let table: serde_json::Value = serde_json::from_str(&run_program("sfdisk", &[Path::new("--json"), disk])?)?;
    let part = &table["partitiontable"]["partitions"][1];
    let bytes = |name: &str| part[name].as_u64().map(|sectors| sectors.saturating_mul(SECTOR_BYTES)).context("sfdisk");
    let device = attach_part(disk, bytes("start")?, bytes("size")?)?;
    let point = dir.join("point");
    std::fs::create_dir(&point)?;
    let mounted = ["subvol=@", "subvol=@/usr", "subvol=@home"].iter().try_for_each(|options| -> Result<()> {
        let words = ["-t", "btrfs", "-o", &format!("ro,{options}"), &device, &point.to_string_lossy()];
        run_program("mount", &words)?;
        let names = std::fs::read_dir(&point)?.count();
        run_program("umount", &[&point])?;
        ensure!(names > 0, "{options}: nothing is there");
        Ok(())
    });
    run_program("losetup", &["-d", &device])?;
    mounted
}

fn boot(root: &Path, options: &Options, disk: &Path, results: &Path) -> Result<()> {
    let mut command = Command::new(root.join("crates/trials/suites/f2fs-guest/run.sh"));
    command.args(["--seconds", &options.seconds.to_string(), "--cache"]).arg(&options.cache);
    command.arg("--disk").arg(disk).args(["--root", "/dev/vdb2", "--rootflags", "subvol=@"]);
    command.args(["--cut-at", BOOTED, "--results"]).arg(results).args(["--", "true"]);
    let status = command.stdin(Stdio::null()).status()?;
    let console = std::fs::read_to_string(results.join("console")).unwrap_or_default();
    let said: Vec<&str> = console.lines().filter(|line| line.contains("disk-boot: ")).collect();
    ensure!(status.success() && said.len() == 1, "the guest: {status}: {said:?}\n{console}");
    Ok(())
}
