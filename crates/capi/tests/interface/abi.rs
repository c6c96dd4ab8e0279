//! Functions, layouts of structs and constants are those that were recorded in `abi.txt`: programs that are compiled
//! against an older header go on to work. `CAPI_BLESS=1` records new lines; a line that is gone or other is a break.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use super::header::{constants_of_header, functions_of_header, strip_comments, structs_of_header};
use super::installed::run;

const RECORDED: &str = "abi.txt";

/// The present interface, one fact a line.
fn present() -> BTreeSet<String> {
    let header = strip_comments(&fs::read_to_string("include/spinney.h").unwrap());
    let mut lines = BTreeSet::new();
    for (name, types) in functions_of_header(&header) {
        lines.insert(format!("function {name}: {types}"));
    }
    for (name, value) in constants_of_header(&header) {
        lines.insert(format!("constant {name}: {value}"));
    }
    // The compiler knows where the fields are.
    let mut program = "#include <stddef.h>\n#include <stdio.h>\n#include <spinney.h>\nint main(void) {\n".to_owned();
    for (name, fields) in structs_of_header(&header) {
        writeln!(program, "printf(\"struct {name}: %zu bytes\\n\", sizeof({name}));").unwrap();
        for field in fields.split("; ") {
            let (field, kind) = field.split_once(": ").unwrap();
            writeln!(
                program,
                "printf(\"field {name}.{field}: {kind} at %zu, %zu bytes\\n\", offsetof({name}, {field}), \
                 sizeof((({name} *)0)->{field}));"
            )
            .unwrap();
        }
    }
    program.push_str("return 0;\n}\n");
    let dir = tempfile::tempdir().unwrap();
    let (source, built) = (dir.path().join("layout.c"), dir.path().join("layout"));
    fs::write(&source, program).unwrap();
    run(Command::new("cc").args(["-std=c11", "-Iinclude", "-o"]).arg(&built).arg(&source));
    lines.extend(run(&mut Command::new(built)).lines().map(str::to_owned));
    lines
}

#[test]
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
fn the_interface_is_as_recorded() {
    let present = present();
    if std::env::var_os("CAPI_BLESS").is_some() {
        fs::write(RECORDED, present.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
    }
    let recorded: BTreeSet<String> = fs::read_to_string(RECORDED).unwrap().lines().map(str::to_owned).collect();
    assert!(recorded.len() > 150, "{} lines are recorded", recorded.len());
    // A struct grows at its end; nothing else of it changes.
    let grown = |line: &&String| line.starts_with("struct ") || line.starts_with("constant SPINNEY_VERSION:");
    let gone: Vec<&String> = recorded.difference(&present).filter(|line| !grown(line)).collect();
    assert!(gone.is_empty(), "programs may depend on what is gone: {gone:#?}");
    let new: Vec<&String> = present.difference(&recorded).collect();
    assert!(new.is_empty(), "record with CAPI_BLESS=1 cargo test -p spinney-capi abi: {new:#?}");
}
