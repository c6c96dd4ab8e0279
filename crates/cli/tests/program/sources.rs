//! Sources of images beside directories: archives, container images, other images, manifests; and the way back.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::Bench;

const EPOCH: (&str, &str) = ("SOURCE_DATE_EPOCH", "1700000000");
const UUID: &str = "11111111-2222-3333-4444-555555555555";

/// Runs a program of the host in the bench's directory; false where it is not installed.
fn host(bench: &Bench, line: &str) -> bool {
    let mut words = line.split(' ');
    let program = words.next().unwrap();
    match Command::new(program)
        .args(words)
        .current_dir(bench.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
    {
        Ok(status) => {
            assert!(status.success(), "{line}");
            true
        }
        Err(_) => {
            println!("skipped: {program} is not installed");
            false
        }
    }
}

fn make_tree(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/one"), "1").unwrap();
    fs::write(dir.join("a/b/large"), vec![5; 3 << 20]).unwrap();
    fs::hard_link(dir.join("a/one"), dir.join("a/b/again")).unwrap();
    std::os::unix::fs::symlink("a/one", dir.join("link")).unwrap();
    let long = "n".repeat(200);
    fs::write(dir.join("a").join(&long), "long").unwrap();
}

/// The image of `source`, in bytes.
fn image(bench: &Bench, options: &str, source: &str) -> Vec<u8> {
    let run = bench.run_with(&format!("mkfs -q -f {options} -U {UUID} -r {source} made.img"), &[EPOCH]);
    assert_eq!(run.status, 0, "{source}: {}", run.err);
    let bytes = fs::read(bench.path("made.img")).unwrap();
    fs::remove_file(bench.path("made.img")).unwrap();
    bytes
}

#[test]
fn a_directory_and_its_archives_make_the_same_image() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    if !host(&bench, "tar -C dir --format=posix -cf a.tar .") {
        return;
    }
    host(&bench, "tar -C dir --format=posix -czf a.tar.gz .");
    for options in ["-t btrfs", "-t btrfs --compress zstd", "-t f2fs"] {
        let first = image(&bench, options, "dir");
        assert!(image(&bench, options, "a.tar") == first, "{options} tar");
        assert!(image(&bench, options, "a.tar.gz") == first, "{options} tar.gz");
        fs::write(bench.path("kept.img"), &first).unwrap();
        assert!(image(&bench, options, "kept.img") == first, "{options} image");
    }
    bench.ok("get --tar out.tar kept.img:/");
    bench.ok("mkfs -q -r out.tar second.img");
    bench.ok("get --tar again.tar second.img");
    assert!(fs::read(bench.path("out.tar")).unwrap() == fs::read(bench.path("again.tar")).unwrap());
    bench.ok("put -q --tar a.tar second.img:/below/it");
    assert_eq!(bench.ok("cat second.img /below/it/a/b/again"), "1");
}

#[test]
fn an_archive_leaves_directories_alone_that_it_does_not_describe() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("dir/ex/tmp")).unwrap();
    fs::write(bench.path("dir/ex/tmp/q"), "q").unwrap();
    if !host(&bench, "tar -C dir/ex -cf q.tar tmp/q") {
        return;
    }
    fs::write(bench.path("manifest"), "#mtree\n./ex type=dir uid=5 gid=6 mode=2711\n./ex/tmp type=dir mode=0700\n")
        .unwrap();
    fs::remove_file(bench.path("dir/ex/tmp/q")).unwrap();
    bench.ok("mkfs -q --size 64M -r dir --manifest manifest a.img");
    bench.ok("put -q --tar q.tar a.img:/ex");
    let stat = |path: &str| bench.json(&format!("stat --json a.img {path}"))["files"][0].clone();
    let ex = stat("/ex");
    assert_eq!((&ex["uid"], &ex["gid"], &ex["mode"]), (&5.into(), &6.into(), &"2711".into()), "{ex}");
    assert_eq!(stat("/ex/tmp")["mode"], "0700");
    assert!(stat("/ex/tmp")["mtime"]["sec"].as_i64().unwrap() > 1_000_000_000);
    assert_eq!(bench.ok("cat a.img /ex/tmp/q"), "q");
}

#[test]
fn later_sources_and_manifests_win() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    fs::create_dir_all(bench.path("over/a")).unwrap();
    fs::write(bench.path("over/a/one"), "2").unwrap();
    let manifest = "#mtree\n./a/one type=file uid=7 gid=8 mode=0600\n./dev type=dir mode=0755 uid=0 gid=0\n\
                    ./dev/null type=char device=native,1,3 mode=0666 uid=0 gid=0\n";
    fs::write(bench.path("manifest"), manifest).unwrap();
    bench.ok("mkfs -q -r dir --from over --all-root --manifest manifest a.img");
    assert_eq!(bench.ok("cat a.img /a/one"), "2");
    let stat = |path: &str| bench.json(&format!("stat --json a.img {path}"))["files"][0].clone();
    assert_eq!((&stat("/a/one")["uid"], &stat("/a/one")["gid"]), (&7.into(), &8.into()));
    assert_eq!(stat("/a/b/large")["uid"], 0);
    assert_eq!(stat("/dev/null")["kind"], "char_device");
    bench.ok("mkfs -q -f -r dir --map-users 0:100:65536 --map-groups 0:200:65536 a.img");
    let owner = fs::metadata(bench.path("dir/a")).map(|found| std::os::unix::fs::MetadataExt::uid(&found)).unwrap();
    assert_eq!(stat("/a")["uid"].as_u64(), Some(u64::from(owner) + 100));
    let run = bench.run("mkfs -q -f -r dir --map-users 5000000:0:1 a.img");
    assert!(run.status == 1 && run.err.contains("expected an id that a range maps"), "{} {}", run.status, run.err);
}

#[test]
fn damaged_sources_are_refused_and_leave_nothing() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    fs::write(bench.path("none"), "no archive at all").unwrap();
    fs::write(bench.path("empty"), "").unwrap();
    let mut lines = vec![
        ("none".to_owned(), 3, "expected an archive of tar or cpio"),
        ("empty".to_owned(), 3, "found an empty input"),
        ("missing".to_owned(), 1, "No such file"),
        ("oci:dir".to_owned(), 3, "oci"),
        ("oci:missing:x".to_owned(), 3, "index.json"),
    ];
    if host(&bench, "tar -C dir -cf a.tar .") {
        let whole = fs::read(bench.path("a.tar")).unwrap();
        fs::write(bench.path("cut.tar"), &whole[..2 << 20]).unwrap();
        lines.push(("cut.tar".to_owned(), 3, "ends within"));
        let run = bench.run("mkfs -q -r a.tar --max-size 1M new.img");
        assert!(run.status != 0 && run.err.contains("that are allowed"), "{}", run.err);
    }
    for (source, status, expected) in lines {
        let run = bench.run(&format!("mkfs -q -r {source} new.img"));
        assert!(run.status == status && run.err.contains(expected), "{source}: {} {}", run.status, run.err);
        assert!(!bench.path("new.img").exists(), "{source}: nothing is left");
    }
}

/// A layout with two layers, made by hand: the second one removes a file of the first and adds one.
pub(crate) fn make_layout(bench: &Bench) -> bool {
    let script = r#"
import hashlib, io, json, os, sys, tarfile
def layer(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode='w', format=tarfile.PAX_FORMAT) as tar:
        for name, text in entries:
            info = tarfile.TarInfo(name)
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text))
    return out.getvalue()
os.makedirs('layout/blobs/sha256')
def blob(data):
    name = hashlib.sha256(data).hexdigest()
    open('layout/blobs/sha256/' + name, 'wb').write(data)
    return {'digest': 'sha256:' + name, 'size': len(data)}
layers = [layer([('etc/old', b'1'), ('etc/kept', b'2')]), layer([('etc/.wh.old', b''), ('new', b'3')])]
blobs = [dict(blob(data), mediaType='application/vnd.oci.image.layer.v1.tar') for data in layers]
ids = [b['digest'] for b in blobs]
config = {'architecture': 'amd64', 'os': 'linux', 'rootfs': {'type': 'layers', 'diff_ids': ids}}
config = dict(blob(json.dumps(config).encode()), mediaType='application/vnd.oci.image.config.v1+json')
manifest = {'schemaVersion': 2, 'config': config, 'layers': blobs}
manifest = dict(blob(json.dumps(manifest).encode()), mediaType='application/vnd.oci.image.manifest.v1+json')
json.dump({'schemaVersion': 2, 'manifests': [manifest]}, open('layout/index.json', 'w'))
json.dump({'imageLayoutVersion': '1.0.0'}, open('layout/oci-layout', 'w'))
"#;
    let spawned = Command::new("python3").arg("-").current_dir(bench.path("")).stdin(Stdio::piped()).spawn();
    let Ok(mut python) = spawned else {
        println!("skipped: python3 is not installed");
        return false;
    };
    python.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(python.wait().unwrap().success());
    true
}

#[test]
fn layers_of_a_container_image_are_applied() {
    let bench = Bench::new();
    if !make_layout(&bench) {
        return;
    }
    bench.ok("mkfs -q -r oci:layout flat.img");
    assert_eq!((bench.ok("ls flat.img /"), bench.ok("ls flat.img /etc")), ("etc\nnew\n".into(), "kept\n".into()));
    bench.ok("mkfs -q -t f2fs -r oci:layout phone.img");
    assert_eq!(bench.ok("ls phone.img /etc"), "kept\n");
    bench.ok("mkfs -q -r oci:layout --layers subvol a.img");
    let listed = bench.json("subvolume list --json a.img");
    let rows = listed["subvolumes"].as_array().unwrap();
    let paths: Vec<(&str, bool)> =
        rows.iter().map(|row| (row["path"].as_str().unwrap(), row["read_only"].as_bool().unwrap())).collect();
    assert_eq!(paths, [("layers/1", true), ("layers/2", true), ("root", false)]);
    assert_eq!(listed["default_id"], rows[2]["id"]);
    let below = |path: &str| bench.ok(&format!("ls --subvolume / a.img {path}"));
    assert_eq!((below("/layers/1/etc"), below("/layers/2/etc")), ("kept\nold\n".into(), "kept\n".into()));
    bench.ok("get --subvolume / --tar layer.tar --oci-layer /layers/1 a.img /layers/2");
    if host(&bench, "tar -tf layer.tar") {
        let listed = Command::new("tar").args(["-tf", "layer.tar"]).current_dir(bench.path("")).output().unwrap();
        let text = String::from_utf8(listed.stdout).unwrap();
        assert!(text.contains("etc/.wh.old") && text.contains("new") && !text.contains("kept"), "{text}");
    }
    let blobs = bench.path("layout/blobs/sha256");
    for blob in fs::read_dir(&blobs).unwrap() {
        let path = blob.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        if bytes.starts_with(b"etc/") {
            let mut changed = bytes.clone();
            changed[700] ^= 1;
            fs::write(&path, changed).unwrap();
        }
    }
    let run = bench.run("mkfs -q -r oci:layout b.img");
    assert!(run.status == 3 && run.err.contains("expected sha256:"), "{} {}", run.status, run.err);
}

#[test]
fn a_disk_is_built_from_a_description() {
    let bench = Bench::new();
    make_tree(&bench.path("dir"));
    fs::write(bench.path("esp.img"), vec![7; 1 << 20]).unwrap();
    let spec = "[disk]\nsize = \"auto\"\nuuid = \"98174385-4e62-4f77-85f8-3dd52030bdca\"\n\
                [[partition]]\nname = \"esp\"\ntype = \"esp\"\ncontent = \"esp.img\"\n\
                [[partition]]\nname = \"swap\"\ntype = \"swap\"\nsize = \"4M\"\nformat = \"swap\"\n\
                [[partition]]\nname = \"root\"\ntype = \"root-x86-64\"\nformat = \"btrfs\"\nsize = \"auto\"\n\
                sources = [\"dir\"]\nsubvolumes = [{ path = \"a\", mode = \"ro\" }]\n\
                options = { compress = \"zstd:3\" }\n\
                [[partition]]\nname = \"data\"\nformat = \"f2fs\"\nsize = \"64M\"\nsources = [\"dir\"]\n\
                [output]\nfile = \"disk.img\"\n";
    fs::write(bench.path("disk.toml"), spec).unwrap();
    let plan = bench.ok("build --check disk.toml");
    assert!(plan.contains("root-x86-64: btrfs") && !bench.path("disk.img").exists(), "{plan}");
    let run = bench.run_with("build -q disk.toml", &[EPOCH]);
    assert_eq!((run.status, run.err.as_str()), (0, ""));
    let layout = bench.json("build --check --json disk.toml");
    for (index, format) in [(2, "btrfs"), (3, "f2fs")] {
        let place = &layout["partitions"][index];
        let part = format!("disk.img?offset={}&size={}", place["start-bytes"], place["size-bytes"]);
        assert_eq!(bench.ok(&format!("cat {part} /a/b/again")), "1", "{format}");
        assert_eq!(bench.run(&format!("check -q {part}")).status, 0, "{format}");
    }
    host(&bench, "sfdisk --verify disk.img");
    let first = fs::read(bench.path("disk.img")).unwrap();
    assert_eq!(bench.run("build -q disk.toml").status, 1, "an existing file stays");
    assert_eq!(bench.run_with("build -q -f disk.toml", &[EPOCH]).status, 0);
    assert!(fs::read(bench.path("disk.img")).unwrap() == first, "the same bytes");
    assert_eq!(bench.run_with("build -q disk.toml -o disk.qcow2", &[EPOCH]).status, 0);
    bench.ok("convert -q disk.img other.qcow2");
    assert!(fs::read(bench.path("disk.qcow2")).unwrap() == fs::read(bench.path("other.qcow2")).unwrap());
    host(&bench, "qemu-img compare -q disk.img disk.qcow2");
    bench.ok("mkfs -q -r dir small.qcow2");
    assert!(fs::read(bench.path("small.qcow2")).unwrap().starts_with(b"QFI\xfb"));
    fs::write(bench.path("wrong.toml"), spec.replace("64M", "64Q")).unwrap();
    let run = bench.run("build wrong.toml");
    assert!(run.status != 0 && run.err.contains("wrong.toml") && run.err.contains("64Q"), "{}", run.err);
}
