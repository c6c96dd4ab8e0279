//! Layers on top of each other, in every corner of whiteouts: the trees are those that `umoci unpack` makes, after each
//! layer, and the list of changes makes the same of a copy of the tree before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{
    Layout, Member, device, dir, file, gzip, hard, has, host_tree, listed, listed_loosely, new_tree, run, symlink, tar,
};
use layers::oci::LayerChange;
use transfer::Tree;

type Case = (&'static str, Vec<Vec<Member>>);

fn base() -> Vec<Member> {
    vec![
        dir("./").mode(0o755),
        dir("d/").mode(0o2750).owner(5, 6).mtime(7),
        file("d/a", "a").owner(1, 2).mode(0o4755).xattr("user.note", b"\0x="),
        file("d/b", "b"),
        dir("d/sub/"),
        file("d/sub/deep", "deep"),
        hard("d/again", "d/b"),
        symlink("link", "d"),
        symlink("abs", "/d/sub"),
        symlink("up", "../../../d"),
        device("null", b'3', 1, 3),
        device("disk", b'4', 8, 1),
        Member::new("pipe", b'6', 0o640),
        dir("usr/"),
        dir("usr/lib/"),
        symlink("lib", "usr/lib"),
    ]
}

fn wh(path: &str) -> Member {
    file(path, "").mode(0o600)
}

fn cases() -> Vec<Case> {
    let over = |name, upper: Vec<Member>| (name, vec![base(), upper]);
    vec![
        ("base", vec![base()]),
        over("whiteout of a file", vec![wh("d/.wh.a")]),
        over("whiteout of a directory", vec![wh(".wh.d")]),
        over("whiteout of a symbolic link", vec![wh(".wh.link")]),
        over("whiteout of one name of two", vec![wh("d/.wh.b")]),
        over("whiteout of a device and a pipe", vec![wh(".wh.null"), wh(".wh.pipe")]),
        over("whiteout of something missing", vec![wh("d/.wh.none"), file("e", "e")]),
        over("whiteout through a symbolic link", vec![wh("link/.wh.a")]),
        over("whiteout through an absolute link", vec![wh("abs/.wh.deep")]),
        over("opaque before names", vec![dir("d/").mtime(9), wh("d/.wh..wh..opq"), file("d/new", "n")]),
        over("opaque after names", vec![dir("d/").mtime(9), file("d/new", "n"), wh("d/.wh..wh..opq")]),
        over(
            "opaque after names in a new subdirectory",
            vec![dir("d/"), dir("d/x/"), file("d/x/new", "n"), wh("d/.wh..wh..opq"), file("d/y", "y")],
        ),
        over("opaque root", vec![wh(".wh..wh..opq"), file("only", "o")]),
        over("opaque of something missing", vec![dir("new/"), wh("new/.wh..wh..opq"), file("new/x", "x")]),
        over("whiteout, then the same name", vec![wh("d/.wh.a"), file("d/a", "new").mode(0o600)]),
        over("the same name, then its whiteout", vec![file("d/a", "new").mode(0o600), wh("d/.wh.a")]),
        over("whiteout, then a directory of that name", vec![wh("d/.wh.sub"), dir("d/sub/"), file("d/sub/x", "x")]),
        over("a hard link to a lower file", vec![hard("e", "d/a"), hard("usr/f", "d/again")]),
        over("hard links, then the whiteout of their file", vec![hard("e", "d/a"), hard("f", "d/a"), wh("d/.wh.a")]),
        over("a hard link, then the whiteout of the directory", vec![hard("e", "d/sub/deep"), wh("d/.wh.sub")]),
        over("a hard link, then an opaque marker", vec![dir("d/"), hard("e", "d/b"), wh("d/.wh..wh..opq")]),
        over("hard links within the layer over a lower name", vec![file("d/a", "2"), hard("z", "d/a")]),
        over("one of two names is written", vec![file("d/b", "changed")]),
        over("directory becomes file", vec![file("d", "now a file")]),
        over("file becomes directory", vec![dir("d/a/"), file("d/a/x", "x")]),
        (
            "directory, file, directory",
            vec![base(), vec![file("d", "1")], vec![dir("d/"), file("d/new", "2")], vec![wh(".wh.d")]],
        ),
        over("directory, file and directory in one layer", vec![file("d", "1"), dir("d/"), file("d/n", "2")]),
        over("a file below a symbolic link", vec![file("lib/libc", "so"), file("up/new", "n")]),
        over("a symbolic link becomes a directory", vec![dir("lib/").mode(0o700), file("lib/own", "o")]),
        over("a directory becomes a symbolic link", vec![wh(".wh.d"), symlink("d", "usr"), file("d/in-usr", "u")]),
        over("attributes of a directory change", vec![dir("d/").mode(0o700).owner(9, 9).mtime(77)]),
        over("device becomes file, and back", vec![file("null", "f"), device("d/a", b'3', 5, 1)]),
        over("directories that nobody describes", vec![file("new/way/to/file", "f"), file("d/sub/more/x", "x")]),
        over("notes of aufs", vec![wh(".wh..wh.aufs"), wh(".wh..wh.orph"), file("d/c", "c")]),
        over("the same file twice", vec![file("d/a", "1"), file("d/a", "2").owner(3, 3)]),
        over("attributes go with a new file", vec![file("d/a", "x").xattr("user.other", b"1")]),
    ]
}

/// Does the changes of a layer to a copy of the tree before it.
fn replay(changes: &[LayerChange], from: &Tree, to: &mut Tree, name: &str) {
    for change in changes {
        match change {
            LayerChange::Remove(path) => drop(to.remove(path).unwrap()),
            LayerChange::Clear(path) => to.clear(path).unwrap(),
            LayerChange::Put(path) => {
                let node = from.node(from.find(path).unwrap().unwrap()).clone();
                let old = to.find(path).unwrap().map(|number| to.node(number).attr.is_dir());
                assert!(old.is_none() || (old == Some(true) && node.attr.is_dir()), "{name}: {change:?}");
                to.put(path, node).unwrap();
            }
            LayerChange::Link { first, path } => {
                assert!(to.find(path).unwrap().is_none(), "{name}: {change:?}");
                to.link(first, path).unwrap();
            }
            LayerChange::Times(path) => {
                assert!(from.node(from.find(path).unwrap().unwrap()).attr.is_dir(), "{name}: {change:?}");
            }
        }
    }
}

fn check(name: &str, layers: &[Vec<Member>], has_umoci: bool) -> usize {
    let mut layout = Layout::new();
    let archives: Vec<Vec<u8>> = layers.iter().map(|layer| tar(layer)).collect();
    for count in 1..=archives.len() {
        layout.image(&format!("t{count}"), &archives[..count]);
    }
    let image = layout.open(&format!("t{}", archives.len())).unwrap();
    let (mut tree, mut copy) = (new_tree(), new_tree());
    let mut compared = 0;
    for index in 0..archives.len() {
        let changes = image.apply_layer(&mut tree, index, &()).unwrap();
        replay(&changes, &tree, &mut copy, name);
        let ours = listed(&tree);
        assert_eq!(listed(&copy), ours, "{name}: {changes:?}");
        let mut flat = new_tree();
        layout.open(&format!("t{}", index + 1)).unwrap().apply(&mut flat, &()).unwrap();
        assert_eq!(listed(&flat), ours, "{name}");
        if has_umoci {
            let bundle = layout.path().join(format!("bundle{index}"));
            let from = format!("{}:t{}", layout.path().display(), index + 1);
            run(Command::new("umoci").args(["unpack", "--image", &from]).arg(&bundle));
            let theirs = host_tree(&bundle.join("rootfs"));
            assert_eq!(
                listed_loosely(&ours, &tree),
                listed_loosely(&listed(&theirs), &tree),
                "{name}, layer {index}: ours and umoci's"
            );
            compared += 1;
        }
    }
    compared
}

#[test]
fn trees_are_those_of_umoci_after_each_layer() {
    let has_umoci = has("umoci") && rustix::process::geteuid().is_root();
    let mut compared = 0;
    for (name, layers) in cases() {
        compared += check(name, &layers, has_umoci);
    }
    println!("{} images, {compared} trees compared with umoci", cases().len());
}

#[test]
fn directories_of_aufs_are_no_part_of_the_tree() {
    let mut layout = Layout::new();
    let upper = vec![dir(".wh..wh.plnk/"), file(".wh..wh.plnk/1.2", "x"), hard("d/c", ".wh..wh.plnk/1.2")];
    layout.image("good", &[tar(&base()), tar(&upper[..2])]);
    let mut tree = new_tree();
    layout.open("good").unwrap().apply(&mut tree, &()).unwrap();
    assert!(tree.find(Path::new(".wh..wh.plnk")).unwrap().is_none());
    layout.image("bad", &[tar(&base()), tar(&upper)]);
    let error = layout.open("bad").unwrap().apply(&mut new_tree(), &()).unwrap_err();
    assert!(error.to_string().ends_with("a hard link to `.wh..wh.plnk/1.2`, which is not there"), "{error}");
}

#[test]
fn compressed_layers_and_archives_of_layouts_are_read() {
    let mut layout = Layout::new();
    let (lower, upper) = (tar(&base()), tar(&[wh("d/.wh.a"), file("e", "e")]));
    layout.image("plain", &[lower.clone(), upper.clone()]);
    let diff_ids = [common::sha256(&lower), common::sha512(&upper)];
    let blobs = [
        layout.blob(&format!("{}+gzip", common::LAYER), &gzip(&lower)),
        layout.blob(&format!("{}+zstd", common::LAYER), &zstd::encode_all(&upper[..], 3).unwrap()),
    ];
    layout.add("mixed", &diff_ids, &blobs);
    let mut plain = new_tree();
    layout.open("plain").unwrap().apply(&mut plain, &()).unwrap();
    let mut mixed = new_tree();
    layout.open("mixed").unwrap().apply(&mut mixed, &()).unwrap();
    assert_eq!(listed(&plain), listed(&mixed));
    let archive = layout.path().join("layout.tar");
    run(Command::new("tar").arg("-C").arg(layout.path()).arg("-cf").arg(&archive).args(["blobs", "index.json"]));
    let place = format!("oci-archive:{}:mixed", archive.display()).parse().unwrap();
    let image = layers::oci::Image::open(&place, &layers::oci::OpenOptions::default(), &()).unwrap();
    let mut archived = new_tree();
    image.apply(&mut archived, &()).unwrap();
    assert_eq!(listed(&plain), listed(&archived));
    assert_eq!(image.config().entrypoint, ["/bin/sh"]);
    assert_eq!(image.layers().len(), 2);
    let saved = serde_json::to_string(image.config()).unwrap();
    assert_eq!(&serde_json::from_str::<layers::oci::Config>(&saved).unwrap(), image.config());
}
