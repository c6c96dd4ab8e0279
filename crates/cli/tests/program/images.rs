//! `spinney image`: container images in a volume, on an image and on a mount.

use std::fs;

use serde_json::json;

use crate::harness::{Bench, assert_same};
use crate::mounted::{Mounted, can_mount};
use crate::sources::make_layout;

const LAYERS: &str = "/images/layers";

#[test]
fn equal_layers_are_there_once_and_a_root_becomes_one_more() {
    let bench = Bench::new();
    if !make_layout(&bench) {
        return;
    }
    bench.ok("mkfs -q --size 256M a.img");
    assert_eq!(bench.ok("image import -q a.img oci:layout one"), "one: 2 layers, 0 of them were there\n");
    let second = bench.json("image import --json -q a.img oci:layout lib/two:1");
    assert_eq!(second, json!({"name": "lib/two:1", "layers": 2, "shared": 2}));
    assert_eq!(bench.ok(&format!("ls a.img {LAYERS}")).lines().count(), 2);
    let list = bench.json("image list --json a.img");
    let tree = list[0]["tree"].as_str().unwrap().to_owned();
    assert_eq!((bench.ok(&format!("ls a.img {tree}/etc")), &list[1]["name"]), ("kept\n".into(), &json!("one")));
    assert_ne!(bench.run(&format!("rm a.img {tree}/new")).status, 0, "a layer was changed");
    assert_eq!(bench.json("image show --json a.img one")["architecture"], "amd64");

    assert_eq!(bench.ok("image fork a.img one /web"), "/web\n");
    fs::write(bench.path("added"), "4").unwrap();
    bench.ok("put -q a.img added /web/added");
    bench.ok("rm a.img /web/etc/kept");
    // The layout has the blobs of the image: they are taken. In a new one they are written anew, with the same trees.
    let known = bench.json("image export --json -q a.img /web oci:layout:web");
    assert_eq!((&known["layers"], &known["known"], &known["changed"]), (&json!(3), &json!(2), &json!(true)));
    let anew = bench.json("image export --json -q --base one a.img /web oci:out:web");
    assert_eq!((&anew["layers"], &anew["known"]), (&json!(3), &json!(0)));
    bench.ok("image export -q a.img /web oci:out:web");
    bench.ok("get -q a.img /web wanted");
    for from in ["layout:web", "out:web"] {
        bench.ok(&format!("mkfs -q -f -r oci:{from} b.img"));
        fs::remove_dir_all(bench.path("found")).ok();
        bench.ok("get -q b.img / found");
        assert_same(&bench.path("wanted"), &bench.path("found"));
    }
    assert_eq!(bench.ok("image import -q a.img oci:layout:web web"), "web: 3 layers, 2 of them were there\n");

    let run = bench.run("image rm a.img one");
    assert!(run.status == 1 && run.err.contains("found /web"), "{}", run.err);
    assert_eq!(bench.ok("image rm --force a.img one"), "0 layers removed\n");
    assert_eq!(bench.ok("image rm a.img web"), "1 layer removed\n");
    assert_eq!(bench.ok("image rm a.img lib/two:1"), "2 layers removed\n");
    assert_eq!(bench.ok("cat a.img /web/added"), "4");
    assert_eq!(bench.json("image list --json a.img"), json!([]));
    bench.check("a.img");
}

#[test]
fn an_image_or_a_root_of_it_is_mounted() {
    let bench = Bench::new();
    if !make_layout(&bench) || !can_mount() {
        return;
    }
    bench.ok("mkfs -q --size 256M a.img");
    bench.ok("image import -q a.img oci:layout one");
    bench.ok("image import -q a.img oci:layout two");
    fs::create_dir(bench.path("tree")).unwrap();
    bench.ok("image mount a.img one tree");
    let kept = bench.path("tree/etc/kept");
    let (is_there, written) = (kept.is_file(), fs::write(&kept, "other"));
    let again = bench.run("image mount tree one tree");
    bench.ok("umount tree");
    assert!(is_there && written.is_err());
    assert!(again.status == 2 && again.err.contains("a mount, which shows"), "{} {}", again.status, again.err);
    for text in ["first", "second"] {
        bench.ok("image mount --root web a.img one tree");
        let before = fs::read_to_string(&kept).unwrap_or_default();
        let written = fs::write(&kept, text);
        bench.ok("umount tree");
        assert!(written.is_ok());
        assert_eq!(before == "first", text == "second", "{before}");
    }
    assert_eq!(bench.ok("cat a.img /web/etc/kept"), "second");
    let run = bench.run("image mount --root web a.img two tree");
    assert!(run.status == 1 && run.err.contains("a root of one, expected one of two"), "{} {}", run.status, run.err);
}

#[test]
fn what_is_no_image_or_store_is_refused_with_a_reason() {
    let bench = Bench::new();
    if !make_layout(&bench) {
        return;
    }
    bench.ok("mkfs -q --size 128M a.img");
    bench.ok("mkfs -q -t f2fs --size 64M phone.img");
    bench.ok("image import -q a.img oci:layout one");
    fs::create_dir(bench.path("full")).unwrap();
    fs::write(bench.path("full/file"), "").unwrap();
    for (line, status, reason) in [
        ("image import -q a.img oci:layout one", 1, "found an image of that name"),
        ("image import -q a.img oci:missing two", 3, "index.json"),
        ("image import -q a.img ./layout two", 1, "a container image"),
        ("image import -q phone.img oci:layout one", 4, "subvolume"),
        ("image fork a.img two /web", 1, "found none of that name"),
        ("image fork a.img one /images", 1, "outside of"),
        ("image fork a.img one /images/layers/x", 1, "outside of"),
        ("image export -q a.img /web oci:out", 1, "that `image fork` has made"),
        ("image export -q a.img /web oci-archive:out", 2, "oci:DIR"),
        ("image export -q --base one a.img /images oci:full", 1, "other files"),
    ] {
        let run = bench.run(line);
        assert!(run.status == status && run.err.contains(reason), "{line}: {} {}", run.status, run.err);
        assert!(!run.err.contains("spinney check"), "{line}: {}", run.err);
    }
    // A damaged layer leaves nothing that looks whole, and a record that lies leads nowhere else.
    bench.ok("image rm a.img one");
    let blobs = bench.path("layout/blobs/sha256");
    for blob in fs::read_dir(&blobs).unwrap() {
        let path = blob.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if bytes.starts_with(b"etc/.wh.old") {
            bytes[700] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
    }
    let run = bench.run("image import -q a.img oci:layout one");
    assert!(run.status == 3 && run.err.contains("expected sha256:"), "{} {}", run.status, run.err);
    assert_eq!(bench.json("image list --json a.img")[0]["complete"], json!(false));
    assert_eq!(bench.run("image fork a.img one /web").status, 1);
    assert_eq!(bench.ok("image prune a.img"), "1 layer removed\n");
    let lie = json!({"name": "x", "is_complete": true, "manifest": null, "config": {},
        "layers": [{"chain_id": "../../../etc", "diff_id": "", "blob": null}]});
    fs::write(bench.path("x"), lie.to_string()).unwrap();
    bench.ok("put -q a.img x /images/names/x");
    let run = bench.run("image fork a.img x /web");
    assert!(run.status != 0 && run.err.contains("sha256 or sha512"), "{}", run.err);
    bench.check("a.img");
}

#[test]
fn a_mount_has_a_store_and_roots_that_programs_use() {
    let Some(mounted) = Mounted::mount_if_possible("") else { return };
    let bench = &mounted.bench;
    if !make_layout(bench) {
        return;
    }
    bench.ok("image import -q mnt oci:layout one");
    assert_eq!(bench.ok("image fork mnt one mnt/web"), "mnt/web\n");
    let root = mounted.dir().join("web");
    assert_eq!(fs::read(root.join("new")).unwrap(), b"3");
    fs::write(root.join("added"), "by a program").unwrap();
    assert_eq!(bench.json("image list --json mnt")[0]["roots"], json!(["/web"]));
    bench.ok("image export -q mnt mnt/web oci:out:web");
    bench.ok("image import -q mnt oci:out:web web");
    bench.ok("image fork --read-only mnt web mnt/copy");
    assert_eq!(fs::read(mounted.dir().join("copy/added")).unwrap(), b"by a program");
    bench.ok("image rm --force mnt one");
    mounted.unmount();
    mounted.check_and_mount_again();
    assert_eq!(fs::read(root.join("added")).unwrap(), b"by a program");
}
