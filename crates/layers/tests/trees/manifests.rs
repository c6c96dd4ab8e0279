//! Manifests in both forms: what tools write is read, what is wrong is named with its line, and owners have their
//! order.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{Random, Watch, has, host_tree, listed, new_tree, run};
use layers::host::HostReadOptions;
use layers::manifest::{Applied, Form, ManifestOptions, Names, apply, write_composefs_dump};
use layers::owners::{IdMap, OwnerRules};
use layers::{FakerootState, Result};
use transfer::{Loss, Tree};
use vfs::file_system::{NodeKind, Time};

fn named(name: &str) -> ManifestOptions {
    ManifestOptions { name: name.into(), ..ManifestOptions::default() }
}

fn mtree(tree: &mut Tree, text: &str) -> Result<Applied> {
    apply(tree, text.as_bytes(), Form::Mtree, &named("m"))
}

fn dump(tree: &mut Tree, text: &str) -> Result<Applied> {
    apply(tree, text.as_bytes(), Form::ComposefsDump, &named("d"))
}

fn node<'a>(tree: &'a Tree, path: &str) -> &'a transfer::NewNode {
    tree.node(tree.find(Path::new(path)).unwrap().unwrap())
}

/// One of everything, names that need escapes, old times.
fn fill(dir: &Path) {
    fs::create_dir_all(dir.join("a dir/sub")).unwrap();
    fs::write(dir.join("a dir/file"), "contents\n").unwrap();
    fs::write(dir.join("-"), "").unwrap();
    fs::write(dir.join("new\nline\\tab\t=#\u{e9}"), "x").unwrap();
    fs::hard_link(dir.join("a dir/file"), dir.join("second")).unwrap();
    symlink("-", dir.join("dash")).unwrap();
    symlink("with space\n", dir.join("a dir/link")).unwrap();
    fs::set_permissions(dir.join("a dir"), fs::Permissions::from_mode(0o2750)).unwrap();
    for (path, seconds) in [("a dir/file", 5), ("a dir/sub", 1_000_000), ("a dir", 7)] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 12);
        let times = fs::FileTimes::new().set_modified(time).set_accessed(time);
        fs::File::open(dir.join(path)).unwrap().set_times(times).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        run(Command::new("mknod").arg(dir.join("dev")).args(["c", "5", "1"]));
        run(Command::new("mkfifo").arg(dir.join("pipe")));
        run(Command::new("chown").arg("7:8").arg(dir.join("second")));
    }
    std::mem::forget(std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap());
}

#[test]
fn a_dump_of_a_tree_makes_the_same_tree() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    let tree = host_tree(dir.path());
    let mut text = Vec::new();
    write_composefs_dump(&tree, &mut text).unwrap();
    // Over itself nothing changes, and every line is of a name that is there.
    let mut again = host_tree(dir.path());
    let applied = apply(&mut again, &text[..], Form::ComposefsDump, &named("d")).unwrap();
    assert_eq!((applied.added, applied.changed), (0, u64::try_from(tree.walk().count()).unwrap()));
    assert_eq!(listed(&again), listed(&tree));
    // Contents of new files come from a directory.
    let lines: Vec<String> = String::from_utf8(text).unwrap().lines().map(str::to_owned).collect();
    let backed: Vec<String> = lines
        .iter()
        .map(|line| {
            let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            if words[2].starts_with("100") && words[1] != "0" {
                words[8] = words[0].clone();
            }
            words.join(" ") + "\n"
        })
        .collect();
    let options = ManifestOptions { contents_below: Some(dir.path().to_owned()), ..named("d") };
    let mut new = new_tree();
    let applied = apply(&mut new, backed.concat().as_bytes(), Form::ComposefsDump, &options).unwrap();
    assert_eq!(applied.changed, 1);
    assert_eq!(listed(&new), listed(&tree));
}

#[test]
fn manifests_of_bsdtar_make_the_same_tree() {
    if !has("bsdtar") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path());
    fs::remove_file(dir.path().join("socket")).unwrap();
    let tree = host_tree(dir.path());
    let mut checked = 0;
    for options in ["all", "!all,use-set,type,uid,gid,mode,time,size,link,device,md5,sha256", "use-set,all,indent"] {
        let text = Command::new("bsdtar")
            .args(["-cf", "-", "--format=mtree", &format!("--options={options}"), "-C"])
            .arg(dir.path())
            .arg(".")
            .output()
            .unwrap()
            .stdout;
        let mut again = host_tree(dir.path());
        // All that the manifest states has to come from it.
        layers::owners::apply(&mut again, &OwnerRules { owner: Some((9, 9)), ..OwnerRules::default() }).unwrap();
        let numbers: Vec<_> = again.walk().map(|(_, number)| number).collect();
        for number in numbers {
            again.edit(number, |node| (node.attr.permissions, node.attr.mtime) = (0, Time::new(1, 1)));
        }
        for bytes in [text.clone(), common::gzip(&text)] {
            let applied = apply(&mut again, &bytes[..], Form::Mtree, &named("m")).unwrap();
            assert_eq!(applied.added, 0);
            assert_eq!(listed(&again), listed(&tree), "{options}");
            checked += 1;
        }
    }
    println!("{checked} manifests of bsdtar");
}

#[test]
fn mtree_adds_and_changes() {
    let mut tree = new_tree();
    let text = "#mtree v2.0\n/set type=file uid=3 gid=4 mode=640\n. type=dir mode=0755\n\
        etc type=dir mode=755 time=5.7\n    passwd size=0 uname=root \\\n  time=-9.1\n    link type=link link=a\\040b\n\
        sub type=dir\n..\n..\n./dev/null type=char device=native,1,3 nlink=1 flags=none\n\
        ./dev/sda type=block device=linux,8,0 uid=0\n/unset uid\n./dev/log type=socket\n\
        ./dev/disk type=block device=0x801\nmissing optional size=7 type=file\n  ./x xattr.user.a=eA== uname=root\n";
    let applied = mtree(&mut tree, text).unwrap();
    assert_eq!(applied, Applied { added: 9, changed: 1, skipped: 1 });
    let passwd = node(&tree, "etc/passwd");
    assert_eq!((passwd.attr.uid, passwd.attr.gid, passwd.attr.permissions), (3, 4, 0o640));
    assert_eq!(passwd.attr.mtime, Time::new(-9, 1));
    assert_eq!(node(&tree, "etc/link").target.as_deref(), Some(&b"a b"[..]));
    assert!(node(&tree, "etc/sub").attr.is_dir());
    assert_eq!((node(&tree, "dev/null").attr.kind, node(&tree, "dev/null").attr.rdev), (NodeKind::CharDevice, 0x103));
    assert_eq!((node(&tree, "dev/disk").attr.rdev, node(&tree, "dev/disk").attr.uid), (0x801, 0));
    assert_eq!(node(&tree, "x").xattrs, [(b"user.a".to_vec(), b"x".to_vec())]);
    let options = ManifestOptions { users: Names::parse(b"bin:x:2:2::/:\n"), ..named("m") };
    apply(&mut tree, &b"./x uname=bin gname=77 mode=0"[..], Form::Mtree, &options).unwrap();
    let x = node(&tree, "x").attr;
    assert_eq!((x.uid, x.gid, x.permissions, x.kind), (2, 77, 0, NodeKind::File));
}

#[test]
fn manifests_of_bsd_close_every_directory() {
    let mut tree = new_tree();
    let text = "#\t   user: root\n\n# .\n/set type=file uid=0 gid=0 mode=0644 nlink=1 flags=none\n\
        .               type=dir mode=0755 nlink=3 time=1700000000.000000000\n    a           size=0 cksum=429496\n\n\
        # ./sub\nsub             type=dir mode=0755 nlink=2\n    b           size=0 optional ignore\n# ./sub\n..\n\n\
        c               mode=0600 size=0\n..\n\n";
    assert_eq!(mtree(&mut tree, text).unwrap(), Applied { added: 4, changed: 1, skipped: 0 });
    assert_eq!(node(&tree, "c").attr.permissions, 0o600);
    assert!(tree.find(Path::new("sub/b")).unwrap().is_some());
    let long = format!("./{} type=dir", "x".repeat(256));
    assert!(mtree(&mut tree, &long).unwrap_err().to_string().contains("names of at most 255 bytes"));
    let deep = "d type=dir\n".repeat(2000);
    let error = mtree(&mut new_tree(), &deep).unwrap_err().to_string();
    assert_eq!(error, "m, line 1025: name: expected at most 1024 directories to enter, found more");
}

#[test]
fn contents_stay_below_their_directory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("in"), "inside").unwrap();
    symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let options = ManifestOptions { contents_below: Some(dir.path().to_owned()), ..named("m") };
    let mut tree = new_tree();
    apply(&mut tree, &b"./a type=file contents=/in size=6"[..], Form::Mtree, &options).unwrap();
    assert_eq!(node(&tree, "a").attr.size, 6);
    for (text, message) in [
        ("./b type=file contents=out", "expected a regular file, found a symbolic link"),
        ("./b type=file contents=../../etc/passwd", "Invalid argument"),
        ("./b type=file contents=none", "No such file"),
        ("./b type=file contents=in size=7", "size: expected contents of 7 bytes, found contents of 6 bytes"),
    ] {
        let error = apply(&mut tree, text.as_bytes(), Form::Mtree, &options).unwrap_err().to_string();
        assert!(error.starts_with("m, line 1: ") && error.contains(message), "{error}");
    }
    let error = mtree(&mut tree, "./b type=file contents=in").unwrap_err().to_string();
    assert!(error.contains("no contents outside the tree, since no directory was given"), "{error}");
    fs::write(dir.path().join("other"), "other").unwrap();
    fs::rename(dir.path().join("other"), dir.path().join("in")).unwrap();
    let error = node(&tree, "a").contents.as_ref().unwrap().open().err().unwrap().to_string();
    assert!(error.ends_with("another file has this name since it was found"), "{error}");
}

#[test]
fn wrong_lines_are_named() {
    for (text, message) in [
        (
            "#x\n./a type=what",
            "m, line 2: type: expected one of block, char, dir, fifo, file, link, socket, found `what`",
        ),
        ("./a", "m, line 1: type: expected the type of a new node, found none, and `/a` is not in the tree"),
        ("./a type=file size=3", "m, line 1: size: expected contents of 3 bytes, found a new file without contents"),
        (
            "./a type=file uname=joe",
            "m, line 1: uname: expected a name that the given names contain, or a number, found `joe`",
        ),
        ("./a type=file mode=u+x", "m, line 1: mode: expected an octal mode, found `u+x`"),
        ("./a type=file time=1.9999999999", "m, line 1: time: expected SECONDS.NANOSECONDS, found `1.9999999999`"),
        ("./a type=char", "m, line 1: device: expected the number of a new device node, found none"),
        ("./a type=link", "m, line 1: link: expected the target of a new symbolic link, found none"),
        ("./a color=red", "m, line 1: keyword: expected a keyword of mtree(5), found `color`"),
        ("./../a type=dir", "m, line 1: path: expected names without `..` and without zero bytes, found `./../a`"),
        (". type=dir\n..\n..", "m, line 3: `..`: expected a directory that was entered, found the root"),
        (". type=file", "m, line 1: type: expected a directory, as `/` is, found a regular file"),
        ("./a\\9 type=dir", "m, line 1: name: expected a name with the escapes of vis(3), found `./a\\\\9`"),
        ("./a type=dir uid=4294967295", "m, line 1: uid: expected a user id below 4294967295, found `4294967295`"),
    ] {
        assert_eq!(mtree(&mut new_tree(), text).unwrap_err().to_string(), message);
    }
    let root = "/ 0 40755 2 0 0 0 1.0 - - -\n";
    for (text, message) in [
        ("a 0 40755 2 0 0 0 1.0 - - -", "path: expected an absolute path, found `a`"),
        ("/a 0 40755 2 0 0 0 1.0 - -", "digest: expected 11 fields, found none"),
        ("/a 3 100644 1 0 0 0 1.0 - ab -", "size: expected contents of 3 bytes, found contents of 2 bytes"),
        (
            "/a 0 755 1 0 0 0 1.0 - - -",
            "mode: expected the mode of a known kind of file, and its permissions, found 755",
        ),
        ("/a 0 @100644 1 0 0 0 1.0 - - -", "payload: expected the path of a hard link's first name, found none"),
        (
            "/a 0 @100644 1 0 0 0 1.0 /b - -",
            "path: expected a place in the tree, found /a: a hard link to `b`, which is not there",
        ),
        ("/a 0 40755 2 0 0 0 1.0 - - - =x", "xattr: expected KEY=VALUE, found `=x`"),
        ("/a 0 40755 2 0 0 0 1.0 - - - a=x a=y", "xattr: expected each attribute once, found one of them twice"),
        (
            "/a\\q 0 40755 2 0 0 0 1.0 - - -",
            "path: expected bytes with the escapes \\xXY, \\\\, \\n, \\r, \\t, found `/a\\\\q`",
        ),
        (
            "/a/../b 0 40755 2 0 0 0 1.0 - - -",
            "path: expected names without `..` and without zero bytes, found `/a/../b`",
        ),
    ] {
        let error = dump(&mut new_tree(), &format!("{root}{text}\n")).unwrap_err();
        let message = message.replace("found /a: a", "found a: a");
        assert_eq!(error.to_string(), format!("d, line 2: {message}"));
    }
    let mut tree = new_tree();
    let text = "/ 0 40755 2 0 0 0 1.0 - - - user.a=\\x00\n/- 3 100644 2 1 2 0 -5.6 x \\x2d\\n\\x00 ab\n\
        /l 1 120777 1 0 0 0 1.0 \\x2d - -\n/h 0 @100644 1 0 0 0 0.0 /- - -";
    assert_eq!(dump(&mut tree, text).unwrap(), Applied { added: 3, changed: 1, skipped: 0 });
    assert_eq!(node(&tree, "l").target.as_deref(), Some(&b"-"[..]));
    assert_eq!((node(&tree, "h").attr.nlink, node(&tree, "h").attr.mtime), (2, Time::new(-5, 6)));
    let endless = vec![b'a'; 3 << 20];
    for form in [Form::Mtree, Form::ComposefsDump] {
        let error = apply(&mut new_tree(), &endless[..], form, &named("m")).unwrap_err();
        assert_eq!(error.to_string(), "m, line 1: length: expected at most 1048576 bytes, found more");
        let continued = b"#\n".iter().chain(b"x \\\n".iter().cycle().take(5 << 20)).copied().collect::<Vec<u8>>();
        assert!(apply(&mut new_tree(), &continued[..], form, &named("m")).is_err());
    }
}

#[test]
fn a_host_directory_is_read_with_links_and_notes() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fill(dir.path());
    fs::create_dir(dir.path().join("late")).unwrap();
    fs::hard_link(dir.path().join("a dir/file"), dir.path().join("late/third")).unwrap();
    fs::write(dir.path().join("outer"), "o").unwrap();
    fs::hard_link(dir.path().join("outer"), other.path().join("outer")).unwrap();
    let (mut tree, watch) = (new_tree(), Watch::default());
    let options = HostReadOptions { below: "x/y".into(), ..HostReadOptions::default() };
    let read = layers::host::read_into(&mut tree, dir.path(), &options, &watch).unwrap();
    assert_eq!(read.partial_links, [Path::new("x/y/outer")]);
    assert_eq!(*watch.lost.lock().unwrap(), [Loss::OtherNames]);
    assert_eq!(read.names + 2, u64::try_from(tree.walk().count()).unwrap());
    assert_eq!(node(&tree, "x/y/second").attr.nlink, 3);
    assert_eq!(tree.find(Path::new("x/y/second")).unwrap(), tree.find(Path::new("x/y/late/third")).unwrap());
    assert_eq!(node(&tree, "x/y/outer").attr.nlink, 1);
    assert_eq!(node(&tree, "x/y/socket").attr.kind, NodeKind::Socket);
    assert_eq!(node(&tree, "x/y/dash").target.as_deref(), Some(&b"-"[..]));
    let contents = node(&tree, "x/y/second").contents.as_ref().unwrap().open().unwrap();
    let mut buffer = [0; 20];
    assert_eq!(contents.read_at(&mut buffer, 0).unwrap(), 9);
    assert!(layers::host::read_into(&mut tree, Path::new("/none"), &options, &watch).is_err());
}

#[test]
fn owners_have_an_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["host", "fakeroot", "mapped", "manifest", "node"] {
        fs::write(dir.path().join(name), "").unwrap();
    }
    let id = |name: &str| {
        let found = rustix::fs::stat(dir.path().join(name)).unwrap();
        format!("dev={:x},ino={}", found.st_dev, found.st_ino)
    };
    let state =
        ["fakeroot", "mapped", "manifest"].map(|name| format!("{},mode=100600,uid=5,gid=6,nlink=1,rdev=0\n", id(name)));
    let state = state.concat() + &format!("{},mode=20640,uid=5,gid=6,nlink=1,rdev=1281\n", id("node"));
    let fakeroot = Some(FakerootState::read(state.as_bytes(), "state").unwrap());
    let options = HostReadOptions { fakeroot, ..HostReadOptions::default() };
    let read = |tree: &mut Tree| layers::host::read_into(tree, dir.path(), &options, &()).unwrap();
    let mut tree = new_tree();
    assert_eq!(read(&mut tree).fakeroot_files, 4);
    let own = rustix::process::geteuid().as_raw();
    let owner = |tree: &Tree, name: &str| (node(tree, name).attr.uid, node(tree, name).attr.gid);
    assert_eq!((owner(&tree, "host").0, owner(&tree, "fakeroot")), (own, (5, 6)));
    assert_eq!(node(&tree, "node").attr.kind, NodeKind::CharDevice);
    assert_eq!((node(&tree, "node").attr.rdev, node(&tree, "node").attr.permissions), (1281, 0o640));
    // Users are mapped, groups are not.
    let users = IdMap::new(["5:105:1".parse().unwrap(), format!("{own}:900:1").parse().unwrap()]).unwrap();
    let rules = OwnerRules { users, ..OwnerRules::default() };
    layers::owners::apply(&mut tree, &rules).unwrap();
    assert_eq!((owner(&tree, "host").0, owner(&tree, "mapped")), (900, (105, 6)));
    mtree(&mut tree, "./manifest uid=77").unwrap();
    assert_eq!((owner(&tree, "manifest"), owner(&tree, "mapped")), ((77, 6), (105, 6)));
    // One owner for all replaces the maps, and an id without a range is named.
    let mut tree = new_tree();
    read(&mut tree);
    let users = IdMap::new(["5:105:1".parse().unwrap()]).unwrap();
    let rules = OwnerRules { users, ..OwnerRules::default() };
    if own != 5 {
        let error = layers::owners::apply(&mut tree, &rules).unwrap_err();
        assert_eq!(error.to_string(), format!("/: user {own}: expected an id that a range maps, found none"));
    }
    let kept = OwnerRules { keeps_unmapped: true, ..rules.clone() };
    layers::owners::apply(&mut tree, &kept).unwrap();
    assert_eq!((owner(&tree, "host").0, owner(&tree, "mapped").0), (own, 105));
    layers::owners::apply(&mut tree, &OwnerRules { owner: Some((0, 0)), ..rules }).unwrap();
    assert!(tree.walk().all(|(_, number)| (tree.node(number).attr.uid, tree.node(number).attr.gid) == (0, 0)));
}

#[test]
fn access_lists_are_mapped() {
    let mut acl = vec![2, 0, 0, 0];
    for (tag, id) in [(1_u16, u32::MAX), (2, 5), (4, u32::MAX), (8, 6), (16, u32::MAX), (32, u32::MAX)] {
        acl.extend(tag.to_le_bytes());
        acl.extend(7_u16.to_le_bytes());
        acl.extend(id.to_le_bytes());
    }
    let mut tree = new_tree();
    let number = tree.root();
    tree.edit(number, |node| node.xattrs.push((b"system.posix_acl_default".to_vec(), acl)));
    let map = |text: &str| IdMap::new(text.split(' ').map(|range| range.parse().unwrap())).unwrap();
    let rules = OwnerRules { users: map("0:0:1 5:50:1"), groups: map("0:0:1 6:60:1"), ..OwnerRules::default() };
    assert_eq!(layers::owners::apply(&mut tree, &rules).unwrap(), 1);
    let value = &tree.node(number).xattrs[0].1;
    assert_eq!((value[16], value[32], value[8]), (50, 60, 255));
    assert!(layers::owners::apply(&mut tree, &rules).is_err());
}

#[test]
fn states_of_fakeroot_are_applied() {
    if !has("fakeroot") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (top, state) = (dir.path().join("top"), dir.path().join("state"));
    fs::create_dir(&top).unwrap();
    let script = "mknod disk b 8 3; mknod null c 1 3; echo x > f; chown 5:6 f; chmod 4755 f; ln f g; mkdir d; \
        chown 7:8 d; ln -s f l; chown -h 9:9 l; mkfifo p; stat -c '%n %f %u %g %t %T' disk null f g d l p";
    let out = run(Command::new("fakeroot").arg("-s").arg(&state).args(["sh", "-c", script]).current_dir(&top));
    let fakeroot = Some(FakerootState::read(fs::File::open(&state).unwrap(), "state").unwrap());
    let options = HostReadOptions { fakeroot, ..HostReadOptions::default() };
    let mut tree = new_tree();
    layers::host::read_into(&mut tree, &top, &options, &()).unwrap();
    let mut count = 0;
    for line in out.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize, radix| u32::from_str_radix(words[at], radix).unwrap();
        let attr = node(&tree, words[0]).attr;
        let rdev = (number(4, 16) << 8) | number(5, 16);
        let found = (attr.kind.mode_bits() | attr.permissions, attr.uid, attr.gid, attr.rdev);
        assert_eq!(found, (number(1, 16), number(2, 10), number(3, 10), rdev), "{line}");
        count += 1;
    }
    assert_eq!(count, 7);
}

#[test]
fn mutated_manifests_are_refused_or_read() {
    let seed = 0x5eed_0001;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mtrees =
        ["#mtree\n/set type=file uid=3 gid=4 mode=640\n. type=dir mode=0755\netc type=dir time=5.7\n  a size=0 \
        uname=root\n l type=link link=a\\040b\n..\n./n type=char device=native,1,3 xattr.user.a=eA== optional\n"];
    let dumps =
        ["/ 0 40755 2 0 0 0 1.0 - - - user.a=\\x00\n/- 3 100644 2 1 2 0 -5.6 x \\x2d\\n\\x00 ab\n/l 1 120777 1 0 0 0 \
        1.0 \\x2d - -\n/h 0 @100644 1 0 0 0 0.0 /- - -\n/n 0 20600 1 0 0 259 7.0 - - -\n"];
    let (mut read, mut refused) = (0, 0);
    for round in 0..20_000 {
        let (form, texts) = if round % 2 == 0 { (Form::Mtree, mtrees) } else { (Form::ComposefsDump, dumps) };
        let bytes = random.mutate(texts[0].as_bytes());
        match apply(&mut new_tree(), &bytes[..], form, &named("m")) {
            Ok(_) => read += 1,
            Err(error) => {
                assert!(error.to_string().starts_with("m, line "), "{error}");
                refused += 1;
            }
        }
        let state = random.mutate(b"dev=fe00,ino=9979872,mode=104755,uid=5,gid=6,nlink=2,rdev=0\n");
        let _ = FakerootState::read(&state[..], "state");
    }
    println!("{read} read, {refused} refused");
    assert!(read > 1000 && refused > 1000);
}
