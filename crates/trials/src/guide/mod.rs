//! Runs the commands of the README and of the guide (blocks `console`) under an account without privileges, and
//! compares their output with that on the page. A block `sh` is not run here: it has to name the steps of `test.sh`
//! that run it.
//!
//! * [`page`] parses the commands of a page, and writes the page with new output.
//! * [`output`] compares what a page shows with what a command printed.
//! * [`account`] makes the account that runs them.
//! * [`recording`] draws the terminal of the README.
//!
//! The commands of a page run in one shell, in an empty directory. Called by `cargo trials guide`, which needs root and
//! fails after all pages if one differs; `--bless` writes the real output into the pages.

mod account;
mod output;
mod page;
mod recording;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::system;
use account::Account;
use page::{Page, Step};

/// Longest time that a server may take to end after its volume was unmounted.
const END_MAX: Duration = Duration::from_secs(5);
/// Folder of the guide's pages.
const GUIDE: &str = "docs/guide/src";
/// Begins the comment that names the steps of `test.sh` that run the commands of the next block.
const RUN_BY: &str = "<!-- run by: ";
/// Stands before a command's output and before its status in what the shell prints.
const MARK: char = '\u{1e}';

/// Makes the device `$1`, and runs the script `$3` as the account `$2`, with its output in `$4`. It runs in a mount
/// namespace of its own, so no mount stays behind. All users may open the FUSE device there, as on most distributions.
const AS_ACCOUNT: &str = "mknod -m 666 \"$1\" c 10 229 && mount --bind \"$1\" /dev/fuse \\
    && exec timeout -k 5 300 setpriv --reuid \"$2\" --regid \"$2\" --clear-groups --reset-env \\
        -- bash \"$3\" > \"$4\" 2>&1 < /dev/null";

/// Options of the trial.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  cargo trials guide --only rescue")]
pub(crate) struct Options {
    /// The `spinney` program.
    #[arg(long, default_value = "target/release/spinney")]
    program: PathBuf,
    /// Only pages with this in their path.
    #[arg(long, default_value = "")]
    only: String,
    /// Write the real output into the pages, and draw the recording anew.
    #[arg(long)]
    bless: bool,
}

/// Runs the commands of all pages, and compares the recording; fails if there is any difference.
pub(crate) fn follow(root: &Path, options: &Options) -> Result<()> {
    ensure!(system::is_root(), "making an account needs root");
    let program =
        options.program.canonicalize().with_context(|| format!("{}: build it first", options.program.display()))?;
    let mut differences = 0;
    for path in pages(root)?.iter().filter(|path| path.to_string_lossy().contains(&options.only)) {
        differences += follow_page(root, path, &program, options.bless)?;
    }
    differences += recording::compare(root, options.bless)?;
    ensure!(differences == 0, "{differences} differences; `cargo trials guide --bless` writes the real output");
    Ok(())
}

/// The README, and the guide's pages.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![PathBuf::from("README.md")];
    for entry in std::fs::read_dir(root.join(GUIDE)).context(GUIDE)? {
        let name = entry?.file_name();
        if Path::new(&name).extension().is_some_and(|extension| extension == "md") {
            pages.push(Path::new(GUIDE).join(name));
        }
    }
    pages.sort();
    Ok(pages)
}

/// Runs the commands of one page; returns how many of them had another output or status than the page now shows.
fn follow_page(root: &Path, path: &Path, program: &Path, bless: bool) -> Result<usize> {
    let mut page = Page::parse(&std::fs::read_to_string(root.join(path))?);
    check_other_commands(root, path)?;
    let steps: Vec<Step> = page.steps().cloned().collect();
    if steps.is_empty() {
        return Ok(0);
    }
    let results = run(&steps, program).with_context(|| path.display().to_string())?;
    let mut differences = 0;
    for (index, (step, (real, status))) in steps.iter().zip(results).enumerate() {
        let is_same = step.status == status && (step.is_hidden || output::matches(&step.shown, &real));
        if is_same {
            continue;
        }
        if bless && !step.is_hidden {
            page.set(index, output::renewed(&step.shown, &real), status);
            continue;
        }
        differences += 1;
        println!("{}:{}: $ {}", path.display(), step.line, step.command);
        println!("  expected status {}:\n    {}", step.status, step.shown.join("\n    "));
        println!("  found status {status}:\n    {}", real.join("\n    "));
    }
    println!("{}: {} commands, {differences} differences", path.display(), steps.len());
    if bless {
        std::fs::write(root.join(path), page.render())?;
    }
    Ok(differences)
}

/// Checks the blocks of commands that this trial does not run (`sh`): the line before each is a comment that names the
/// steps of `test.sh` that run them.
fn check_other_commands(root: &Path, path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(path))?;
    let test = std::fs::read_to_string(root.join("test.sh"))?;
    for (before, _) in text.lines().zip(text.lines().skip(1)).filter(|(_, line)| *line == "```sh") {
        let steps = before.strip_prefix(RUN_BY).and_then(|rest| rest.strip_suffix(" -->"));
        let steps = steps.with_context(|| format!("{}: a block `sh` without `{RUN_BY}STEP -->`", path.display()))?;
        for step in steps.split(", ") {
            ensure!(test.contains(&format!("step {step} ")), "{}: no step {step} in test.sh", path.display());
        }
    }
    Ok(())
}

/// Runs commands one after the other in a shell of a new account; returns the lines and the status of each.
fn run(steps: &[Step], program: &Path) -> Result<Vec<(Vec<String>, i32)>> {
    let account = Account::new(program)?;
    let mut script = format!(
        "export HOME='{}' PATH='{}' LC_ALL=C.UTF-8 TZ=UTC\numask 022\ncd \"$(mktemp -d)\"\n",
        account.home.display(),
        account.programs.display()
    );
    for step in steps {
        script += &format!("printf '{MARK}'\n{}\nprintf '{MARK}%d\\n' $?\n", step.command);
    }
    let folder = tempfile::tempdir()?;
    let (file, printed) = (account.programs.join("script"), folder.path().join("output"));
    std::fs::write(&file, script)?;
    let device = folder.path().join("fuse");
    let status = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "sh", "-c", AS_ACCOUNT, "sh"])
        .args([&device, Path::new(Account::name()), &file, &printed])
        .status()?;
    let printed = String::from_utf8_lossy(&std::fs::read(&printed)?).into_owned();
    ensure!(status.success() || status.code() == Some(last_status(&printed)), "the shell: {status}\n{printed}");
    wait_for_end()?;
    results(steps, &printed)
}

/// Waits until no process of the account is left: every page unmounts what it mounted.
fn wait_for_end() -> Result<()> {
    let end = Instant::now() + END_MAX;
    loop {
        let left = Command::new("pgrep").args(["-u", Account::name(), "-a"]).output()?;
        if left.stdout.is_empty() {
            return Ok(());
        }
        ensure!(Instant::now() < end, "still running: {}", String::from_utf8_lossy(&left.stdout));
        std::thread::sleep(END_MAX / 100);
    }
}

fn last_status(printed: &str) -> i32 {
    printed.rsplit(MARK).next().and_then(|status| status.trim().parse().ok()).unwrap_or(0)
}

fn results(steps: &[Step], printed: &str) -> Result<Vec<(Vec<String>, i32)>> {
    let mut parts = printed.split(MARK).skip(1);
    let mut results = Vec::new();
    for step in steps {
        let (Some(text), Some(status)) = (parts.next(), parts.next()) else {
            bail!("line {}: the shell ended in `{}`: {printed}", step.line, step.command);
        };
        results.push((text.lines().map(ToOwned::to_owned).collect(), status.trim().parse()?));
    }
    Ok(results)
}
