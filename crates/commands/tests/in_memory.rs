//! Every common command, over a format that has nothing to do with any on disk.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The example, which `cargo test` has built beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("the test's own path");
    let built = test.ancestors().nth(2).expect("the folder of the profile");
    built.join("examples/in_memory")
}

/// What the program prints for these lines, in which `IMG` is the image and `DIR` the folder it is in.
fn run(dir: &Path, lines: &str) -> String {
    let image = dir.join("image");
    fs::write(&image, "in memory").expect("an image");
    let (image, dir) = (image.to_str().expect("a plain path"), dir.to_str().expect("a plain path"));
    let names = |text: &str| text.replace("IMG", image).replace("DIR", dir);
    let mut child = Command::new(program()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    child.stdin.take().expect("its input").write_all(names(lines).as_bytes()).expect("its input");
    let output = child.wait_with_output().expect("its end");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.replace(image, "IMG").replace(dir, "DIR")
}

#[test]
fn every_command_works_on_a_format_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("notes"), "hello\n").unwrap();
    fs::write(source.join("large"), vec![7; 3 << 20]).unwrap();
    std::os::unix::fs::symlink("notes", source.join("link")).unwrap();
    fs::hard_link(source.join("notes"), source.join("twice")).unwrap();
    let printed = run(
        dir.path(),
        "mkdir -p IMG /a/b\n\
         put -q IMG DIR/source /a\n\
         ls IMG /a/source\n\
         cat IMG /a/source/link\n\
         ln -s IMG source/notes /a/short\n\
         ln IMG /a/source/notes /a/third\n\
         mv IMG /a/third /a/b/moved\n\
         tree IMG /\n\
         rm IMG /a/source/twice\n\
         rm -r IMG /a/source/none\n\
         cat IMG /a/b/moved\n\
         get -q --no-owner IMG /a DIR/copy\n\
         rm -r IMG /a\n\
         ls IMG /\n",
    );
    let expected = "= 0\n= 0\nlarge\nlink\nnotes\ntwice\n= 0\nhello\n= 0\n= 0\n= 0\n= 0\n\
        /\n└── a\n    ├── b\n    │   └── moved\n    ├── short -> source/notes\n    └── source\n        \
        ├── large\n        ├── link -> notes\n        ├── notes\n        └── twice\n\n3 directories, 6 files\n= 0\n\
        = 0\n/a/source/none: no such file or directory\n= 1\nhello\n= 0\n= 0\n= 0\n= 0\n";
    assert_eq!(printed, expected);
    let copy = dir.path().join("copy");
    assert_eq!(fs::read(copy.join("source/large")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(fs::read_link(copy.join("source/link")).unwrap(), Path::new("notes"));
    assert_eq!(fs::read_to_string(copy.join("short")).unwrap(), "hello\n");
}

#[test]
fn what_the_format_lacks_is_said_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("other"), vec![0; 100]).unwrap();
    let printed = run(
        dir.path(),
        "ls --subvolume x IMG\n\
         info --super 1 IMG\n\
         put -q IMG DIR/other /file\n\
         stat --extents IMG /file\n\
         info IMG\n\
         ls DIR/none\n\
         put -q --compress zstd IMG DIR/other /compressed\n\
         defrag IMG /file\n\
         dedupe IMG /file\n\
         cp --reflink IMG /file /shared\n\
         cp IMG /file /copied\n",
    );
    let lines: Vec<&str> = printed.lines().collect();
    let (statuses, texts): (Vec<&str>, Vec<&str>) = lines.iter().partition(|line| line.starts_with("= "));
    assert_eq!(statuses, ["= 4", "= 4", "= 0", "= 4", "= 0", "= 1", "= 4", "= 4", "= 4", "= 4", "= 0"], "{printed}");
    assert!(texts[0].contains("the format memory has no subvolumes"), "{printed}");
    assert!(texts[1].contains("the format memory has no copies of a superblock"), "{printed}");
    assert!(texts[2].ends_with("operation not supported"), "{printed}");
    assert!(texts[3].starts_with("Blocks: "), "{printed}");
    assert!(texts[4].contains("No such file"), "{printed}");
    assert!(texts[5].contains("the format memory has no compression"), "{printed}");
}

/// The crate is built without any crate of a format on disk.
#[test]
fn no_format_on_disk_is_linked_in() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut tree = Command::new(cargo);
    tree.args(["tree", "--offline", "--prefix", "none", "--edges", "normal,dev", "--package", "spinney-commands"]);
    let output = tree.current_dir(env!("CARGO_MANIFEST_DIR")).output().expect("cargo tree");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("vfs-conformance"), "{output:?}");
    let mut own: Vec<&str> =
        text.lines().filter(|line| line.contains("(/")).filter_map(|line| line.split(' ').next()).collect();
    own.sort_unstable();
    own.dedup();
    let known =
        ["blockdev", "commands", "crash-explorer", "fuse", "remote", "vfs"].map(|name| format!("spinney-{name}"));
    assert_eq!(own, [known.as_slice(), &["vfs-conformance".to_owned()]].concat(), "{text}");
}
