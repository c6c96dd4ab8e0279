//! The library as `install.sh` lays it out, once for all tests, and the compilers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

static INSTALLED: LazyLock<PathBuf> = LazyLock::new(|| {
    // The same place each time, as nothing removes it at the end.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("capi");
    // Cargo builds it with this test, as a dependency.
    let archive = std::env::current_exe().unwrap().parent().unwrap().join("libspinney_capi.a");
    run(Command::new("./install.sh").arg(archive).arg(&dir));
    dir
});

/// The prefix that the library is installed below.
pub(crate) fn prefix() -> &'static Path {
    &INSTALLED
}

/// The program, where the workspace was built.
pub(crate) fn program() -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap().ancestors().nth(2)?.join("spinney");
    program.exists().then_some(program)
}

/// Runs a command to its end, which has to be a good one.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}: {}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

pub(crate) fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

pub(crate) fn is_there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Options of pkg-config for the installed library.
pub(crate) fn pkg_config(words: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(words).arg("spinney");
    run(&mut command).split_whitespace().map(str::to_owned).collect()
}

/// Compiles a program in C with the shared library.
pub(crate) fn compile(source: &Path, dir: &Path) -> PathBuf {
    let program = dir.join(source.file_stem().unwrap());
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-pthread", "-o"]);
    command.arg(&program).arg(source).args(pkg_config(&["--cflags", "--libs"]));
    command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
    run(&mut command);
    program
}

/// Compiles a program in C with the static library and a sanitizer; `None` where the compiler lacks it.
pub(crate) fn compile_sanitized(source: &Path, dir: &Path, sanitizer: &str) -> Option<PathBuf> {
    let flag = format!("-fsanitize={sanitizer}");
    let probe = dir.join("probe.c");
    fs::write(&probe, "int main(void) { return 0; }\n").unwrap();
    let has = output(Command::new("cc").arg(&flag).arg(&probe).arg("-o").arg(dir.join("probe")));
    if !has.status.success() {
        return None;
    }
    let program = dir.join(format!("{}-{sanitizer}", source.file_stem().unwrap().display()));
    let mut command = Command::new("cc");
    command.args(["-std=c11", "-D_DEFAULT_SOURCE", "-g", "-pthread", &flag, "-o"]).arg(&program).arg(source);
    command.args(pkg_config(&["--cflags"])).arg(prefix().join("lib/libspinney.a"));
    let private = pkg_config(&["--libs", "--static"]);
    command.args(private.iter().filter(|word| *word != "-lspinney"));
    run(&mut command);
    Some(program)
}
