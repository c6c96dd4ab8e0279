//! Lists the programs that keep a mount from being unmounted, for the error message. Caller: `umount`.

use std::fs;
use std::path::Path;

/// Programs that use `dir` or files below it: as working directory, executable, open files or mappings. Each as `name
/// (number)`. Only root sees those of other users. The mounted file system is not accessed.
pub(super) fn holders(dir: &Path) -> Vec<String> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for entry in all.flatten() {
        let name = entry.file_name();
        let number = name.to_string_lossy();
        if number.bytes().all(|byte| byte.is_ascii_digit()) && holds(&entry.path(), dir) {
            let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            names.push(format!("{} ({number})", program.trim_end()));
        }
    }
    names
}

fn holds(process: &Path, dir: &Path) -> bool {
    let leads_there = |link: &Path| fs::read_link(link).is_ok_and(|target| target.starts_with(dir));
    let has_open = || {
        let files = fs::read_dir(process.join("fd"));
        files.is_ok_and(|mut files| files.any(|file| file.is_ok_and(|file| leads_there(&file.path()))))
    };
    let has_mapped = || {
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        let maps = String::from_utf8_lossy(&maps);
        maps.lines().any(|line| line.find('/').is_some_and(|at| Path::new(&line[at..]).starts_with(dir)))
    };
    ["cwd", "root", "exe"].iter().any(|link| leads_there(&process.join(link))) || has_open() || has_mapped()
}
