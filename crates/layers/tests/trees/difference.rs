//! Differences of two trees: applied over the old tree, they make the new one, here and by umoci; and what umoci writes
//! of the same change makes the same tree.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use crate::common::{Layout, Random, Watch, has, host_tree, listed, listed_loosely, new_tree, run};
use layers::oci::{DifferenceOptions, Written, difference};
use transfer::{
    Contents, Loss, NewNode, Options, Stored, Transfer, Tree, VolumeSink, VolumeSinkOptions, VolumeSource,
    plain_metadata,
};
use vfs::Volume;
use vfs::file_system::{NodeKind, Time};

struct Text(Vec<u8>);

impl Contents for Text {
    fn next_data(&self, at: u64, size: u64) -> transfer::Result<Option<(u64, u64)>> {
        Ok((at < size).then_some((at, size)))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> transfer::Result<usize> {
        let rest = self.0.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn size(&self) -> transfer::Result<u64> {
        Ok(u64::try_from(self.0.len()).unwrap())
    }
}

impl Stored for Text {
    fn open(&self) -> transfer::Result<Box<dyn Contents + Send + Sync>> {
        Ok(Box::new(Self(self.0.clone())))
    }
}

fn node(kind: NodeKind, number: u64) -> NewNode {
    // Two files may differ in their contents alone.
    let (fill, number) = (u8::try_from(number).unwrap(), number / 2);
    let sec = i64::try_from(number).unwrap();
    let mut attr = plain_metadata(kind, 0o644, Time::new(sec, 5));
    let mut contents: Option<Arc<dyn Stored>> = None;
    match kind {
        NodeKind::File => {
            attr.size = number * 3;
            contents = Some(Arc::new(Text(vec![fill; usize::try_from(attr.size).unwrap()])));
        }
        NodeKind::CharDevice => attr.rdev = u32::try_from(number).unwrap(),
        NodeKind::Symlink => attr.size = 1,
        _ => {}
    }
    let target = (kind == NodeKind::Symlink).then(|| b"a".to_vec());
    NewNode { attr, target, xattrs: Vec::new(), contents: contents.filter(|_| attr.size > 0) }
}

fn layer(old: &Tree, new: &Tree) -> (Vec<u8>, Written) {
    let mut out = Vec::new();
    let written = difference(old, new, &mut out, &DifferenceOptions::default(), &()).unwrap();
    let mut again = Vec::new();
    difference(old, new, &mut again, &DifferenceOptions::default(), &()).unwrap();
    assert!(out == again, "the same trees give the same layer");
    (out, written)
}

/// The tree of an image whose layers make `old` of nothing, and `new` of that.
fn applied(old: &Tree, new: &Tree) -> (Tree, Written, Layout) {
    let (lower, _) = layer(&new_tree(), old);
    let (upper, written) = layer(old, new);
    let mut layout = Layout::new();
    layout.image("t", &[lower, upper]);
    let mut tree = new_tree();
    layout.open("t").unwrap().apply(&mut tree, &()).unwrap();
    (tree, written, layout)
}

/// A tree of a few names, by chance.
fn tree(random: &mut Random, tree: &mut Tree) {
    for _ in 0..1 + random.below(12) {
        let names = ["a", "b", "c", "d"];
        let depth = 1 + random.below(3);
        let path = (0..depth).map(|_| names[random.below(4)]).collect::<Vec<_>>().join("/");
        let path = Path::new(&path);
        let number = u64::try_from(random.below(6)).unwrap();
        let done = match random.below(10) {
            0..=2 => tree.put(path, node(NodeKind::File, number)).map(drop),
            3..=4 => tree.put(path, node(NodeKind::Directory, number)).map(drop),
            5 => tree.put(path, node(NodeKind::CharDevice, number)).map(drop),
            6 => tree.link(Path::new(names[random.below(4)]), path),
            _ => tree.remove(path).map(drop),
        };
        // A file on the way, or nothing to link to.
        let _ = done;
    }
}

#[test]
fn any_difference_applied_makes_the_new_tree() {
    let seed = 0x5eed_0003;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    for round in 0..1500 {
        let (mut old, mut new) = (new_tree(), new_tree());
        let common = random.next();
        for side in [&mut old, &mut new] {
            tree(&mut Random(common | 1), side);
            tree(&mut random, side);
        }
        let (made, _, _) = applied(&old, &new);
        assert_eq!(listed(&made), listed(&new), "round {round}");
    }
}

fn fill(dir: &Path) {
    for name in ["kept", "gone/x", "emptied", "part", "becomes-file"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    for name in
        ["kept/a", "gone/x/y", "emptied/1", "emptied/2", "part/1", "part/2", "becomes-file/z", "becomes-dir", "f"]
    {
        fs::write(dir.join(name), name).unwrap();
    }
    fs::write(dir.join("large"), vec![7; 3 << 20]).unwrap();
    fs::hard_link(dir.join("f"), dir.join("kept/second")).unwrap();
    symlink("f", dir.join("link")).unwrap();
}

fn change(dir: &Path) {
    fs::remove_dir_all(dir.join("gone")).unwrap();
    fs::remove_dir_all(dir.join("becomes-file")).unwrap();
    fs::write(dir.join("becomes-file"), "file").unwrap();
    fs::remove_file(dir.join("becomes-dir")).unwrap();
    fs::create_dir(dir.join("becomes-dir")).unwrap();
    fs::write(dir.join("becomes-dir/in"), "in").unwrap();
    for name in ["emptied/1", "emptied/2", "part/1"] {
        fs::remove_file(dir.join(name)).unwrap();
    }
    fs::write(dir.join("emptied/3"), "3").unwrap();
    fs::set_permissions(dir.join("kept/a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(dir.join("f"), dir.join("third")).unwrap();
    let mut large = vec![7; 3 << 20];
    large[2 << 20] = 8;
    let times = fs::metadata(dir.join("large")).unwrap().modified().unwrap();
    fs::write(dir.join("large"), large).unwrap();
    fs::File::open(dir.join("large")).unwrap().set_modified(times).unwrap();
}

#[test]
fn directories_of_the_host_are_compared() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    fs::create_dir(&old).unwrap();
    fill(&old);
    run(Command::new("cp").arg("-a").arg(&old).arg(&new));
    change(&new);
    let (before, after) = (host_tree(&old), host_tree(&new));
    let (made, written, layout) = applied(&before, &after);
    assert_eq!(listed(&made), listed(&after));
    // Root, becomes-dir and in, becomes-file, emptied and 3, f, kept and a, large, part; second and third.
    assert_eq!(written, Written { nodes: 11, links: 2, whiteouts: 2, opaque: 1 });
    // Directories as sources themselves give the same bytes.
    let (a, b) = (transfer::HostSource::open(&old).unwrap(), transfer::HostSource::open(&new).unwrap());
    let mut out = Vec::new();
    difference(&a, &b, &mut out, &DifferenceOptions::default(), &()).unwrap();
    assert!(out == layer(&before, &after).0);
    let mut same = Vec::new();
    let written = difference(&a, &a, &mut same, &DifferenceOptions::default(), &()).unwrap();
    assert_eq!((written, same.len()), (Written::default(), 10_240));
    if has("umoci") && rustix::process::geteuid().is_root() {
        let bundle = dir.path().join("bundle");
        run(Command::new("umoci").args(["unpack", "--image", &format!("{}:t", layout.path().display())]).arg(&bundle));
        let theirs = host_tree(&bundle.join("rootfs"));
        assert_eq!(listed_loosely(&listed(&theirs), &after), listed_loosely(&listed(&after), &after));
    }
}

#[test]
fn all_names_of_a_changed_file_are_written() {
    // Size and times stay, contents change; and a name is added to a file that stays.
    let [old, new] = [2, 3].map(|number| {
        let mut tree = new_tree();
        tree.put(Path::new("b/first"), node(NodeKind::File, number)).unwrap();
        tree.link(Path::new("b/first"), Path::new("c")).unwrap();
        tree.put(Path::new("x"), node(NodeKind::File, 4)).unwrap();
        if number == 3 {
            tree.link(Path::new("x"), Path::new("a")).unwrap();
        }
        tree
    });
    let (made, written, _) = applied(&old, &new);
    assert_eq!(listed(&made), listed(&new));
    assert_eq!(written, Written { nodes: 4, links: 2, ..Written::default() });
}

#[test]
fn volumes_are_compared() {
    let mut random = Random(0x5eed_0004);
    for _ in 0..50 {
        let mut sides = [new_tree(), new_tree()];
        for side in &mut sides {
            tree(&mut Random(99), side);
            tree(&mut random, side);
        }
        let volumes = sides.each_ref().map(|side| {
            let volume = Volume::new(Arc::new(vfs_conformance::MemoryFs::default()));
            let sink = VolumeSink::new(&volume, "/", VolumeSinkOptions::default());
            Transfer::new(side, &sink, &Options::default(), &()).contents().unwrap();
            volume
        });
        let [old, new] = volumes.each_ref().map(|volume| VolumeSource::new(volume, "/"));
        let mut out = Vec::new();
        difference(&old, &new, &mut out, &DifferenceOptions::default(), &()).unwrap();
        // The root of a volume has its own times.
        let (mut made, mut layout) = (new_tree(), Layout::new());
        layout.image("t", &[layer(&new_tree(), &sides[0]).0, out]);
        layout.open("t").unwrap().apply(&mut made, &()).unwrap();
        assert_eq!(listed(&made)[1..], listed(&sides[1])[1..]);
    }
}

#[test]
fn umoci_writes_layers_that_are_read() {
    if !has("umoci") || !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (image, bundle) = (dir.path().join("image"), dir.path().join("bundle"));
    let tagged = format!("{}:t", image.display());
    run(Command::new("umoci").args(["init", "--layout"]).arg(&image));
    run(Command::new("umoci").args(["new", "--image", &tagged]));
    run(Command::new("umoci").args(["config", "--image", &tagged, "--config.env", "A=b", "--config.label", "x=y"]));
    let rootfs = bundle.join("rootfs");
    for step in [fill, change] {
        run(Command::new("umoci").args(["unpack", "--image", &tagged]).arg(&bundle));
        step(&rootfs);
        // umoci writes whole seconds.
        run(Command::new("sh").args(["-c", "find . -exec touch -h -d @1234567890 {} +"]).current_dir(&rootfs));
        run(Command::new("umoci").args(["repack", "--image", &tagged]).arg(&bundle));
        let after = host_tree(&rootfs);
        let place =
            layers::oci::Place { storage: layers::oci::Storage::Layout, path: image.clone(), tag: Some("t".into()) };
        let opened = layers::oci::Image::open(&place, &layers::oci::OpenOptions::default(), &()).unwrap();
        assert_eq!(opened.config().env, ["A=b"]);
        assert_eq!(opened.config().labels.get("x").map(String::as_str), Some("y"));
        let mut made = new_tree();
        opened.apply(&mut made, &()).unwrap();
        // umoci forgets that unchanged names and new ones are of one file, so count of links and first names differ.
        let plain = |tree: &Tree| -> Vec<String> {
            let lines = listed_loosely(&listed(tree), tree);
            let is_linked =
                |line: &&String| !["/f ", "/kept/second ", "/third "].iter().any(|path| line.starts_with(path));
            lines.iter().filter(is_linked).cloned().collect()
        };
        assert_eq!(plain(&made), plain(&after));
        assert!(made.find(Path::new("kept/second")).unwrap().is_some());
        fs::remove_dir_all(&bundle).unwrap();
    }
}

#[test]
fn names_of_whiteouts_are_refused_and_sockets_told() {
    let (old, mut new) = (new_tree(), new_tree());
    new.put(Path::new("s"), node(NodeKind::Socket, 1)).unwrap();
    let watch = Watch::default();
    let mut out = Vec::new();
    difference(&old, &new, &mut out, &DifferenceOptions::default(), &watch).unwrap();
    assert_eq!(*watch.lost.lock().unwrap(), [Loss::Socket]);
    new.put(Path::new("d/.wh.x"), node(NodeKind::File, 1)).unwrap();
    let error = difference(&old, &new, &mut Vec::new(), &DifferenceOptions::default(), &()).unwrap_err();
    let expected = "d/.wh.x: name: expected a name that does not begin with `.wh.`, as whiteouts do, found `.wh.x`";
    assert_eq!(error.to_string(), expected);
}
