//! Images of other tools are read, the right one is chosen, and those that lie are refused with a clear error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common;
use crate::common::{
    CONFIG, INDEX, LAYER, Layout, MANIFEST, Random, dir, file, gzip, has, listed, new_tree, run, sha256, tar,
};
use layers::oci::{Image, OpenOptions, Place};
use serde_json::{Value, json};

/// Mutated documents that are tried; `LAYERS_CASES` tries more. Each opens and applies an image.
const CASES: u32 = 4000;

fn simple() -> Vec<u8> {
    tar(&[dir("./"), file("a", "text").owner(3, 4)])
}

fn open(place: &str) -> layers::Result<Image> {
    Image::open(&place.parse().unwrap(), &OpenOptions::default(), &())
}

fn tree_of(image: &Image) -> Vec<String> {
    let mut tree = new_tree();
    image.apply(&mut tree, &()).unwrap();
    listed(&tree)
}

/// The failure of opening the image with this tag and applying it.
fn failure(layout: &Layout, tag: &str) -> String {
    let image = match layout.open(tag) {
        Err(error) => return error.to_string(),
        Ok(image) => image,
    };
    let mut tree = new_tree();
    let error = image.apply(&mut tree, &()).unwrap_err();
    assert_eq!(tree.walk().count(), 1, "a damaged layer changes nothing");
    error.to_string()
}

#[test]
fn archives_by_skopeo_are_read() {
    if !has("skopeo") {
        return;
    }
    let mut layout = Layout::new();
    layout.image("t", &[simple(), tar(&[file(".wh.a", ""), file("b", "b")])]);
    let expected = tree_of(&layout.open("t").unwrap());
    let from = format!("oci:{}:t", layout.path().display());
    for kind in ["docker-archive", "oci-archive"] {
        let path = layout.path().join(kind);
        let to = format!("{kind}:{}:name:tag", path.display());
        run(Command::new("skopeo").args(["--insecure-policy", "copy", "--quiet", &from, &to]));
        for place in [format!("{kind}:{}", path.display()), format!("{kind}:{}:name:tag", path.display())] {
            // skopeo writes the whole name with its host into a Docker archive.
            let place =
                if kind == "docker-archive" { place.replace(":name:", ":docker.io/library/name:") } else { place };
            let image = open(&place).unwrap();
            assert_eq!(tree_of(&image), expected, "{place}");
            assert_eq!(image.config().labels.get("a").map(String::as_str), Some("b"));
        }
        // The same archive, compressed as a whole.
        let packed = layout.path().join(format!("{kind}.gz"));
        fs::write(&packed, gzip(&fs::read(&path).unwrap())).unwrap();
        assert_eq!(tree_of(&open(&format!("{kind}:{}", packed.display())).unwrap()), expected);
        let error = open(&format!("{kind}:{}:none", path.display())).unwrap_err().to_string();
        assert!(error.contains("with the tag `none`") || error.contains("for the tag `none`"), "{error}");
    }
    // A copy with gzip layers and another manifest.
    let gz = format!("oci:{}:gz", layout.path().join("gz").display());
    run(Command::new("skopeo").args(["--insecure-policy", "copy", "--quiet", "--dest-compress", &from, &gz]));
    assert_eq!(tree_of(&open(&gz).unwrap()), expected);
}

#[test]
fn archives_of_old_and_new_versions_of_docker_are_read() {
    let mut layout = Layout::new();
    let (lower, upper) = (simple(), tar(&[file(".wh.a", ""), file("b", "b")]));
    layout.image("t", &[lower.clone(), upper.clone()]);
    let expected = tree_of(&layout.open("t").unwrap());
    let manifest = fs::read(layout.blob_path(layout.manifests[0]["digest"].as_str().unwrap())).unwrap();
    let config = serde_json::from_slice::<Value>(&manifest).unwrap()["config"]["digest"].as_str().unwrap().to_owned();
    let config_bytes = fs::read(layout.blob_path(&config)).unwrap();
    let member = |path: &str, data: &[u8]| common::Member { data: data.to_vec(), ..file(path, "") };
    let list = |config: &str, layers: [&str; 2]| {
        serde_json::to_vec(&json!([{ "Config": config, "RepoTags": ["a:latest"], "Layers": layers }])).unwrap()
    };
    let place = layout.path().join("docker.tar");
    let spec = format!("docker-archive:{}", place.display());
    // Old: a directory for each layer, and a link where two are the same.
    let name = format!("{}.json", &config[7..]);
    let old = |name: &str, config: &[u8]| {
        tar(&[
            member("1/layer.tar", &lower),
            member("3/layer.tar", &gzip(&upper)),
            common::symlink("2/layer.tar", "../3/layer.tar"),
            member(name, config),
            member("manifest.json", &list(name, ["1/layer.tar", "2/layer.tar"])),
        ])
    };
    fs::write(&place, old(&name, &config_bytes)).unwrap();
    for tag in ["", ":a", ":a:latest"] {
        assert_eq!(tree_of(&open(&format!("{spec}{tag}")).unwrap()), expected);
    }
    assert!(open(&format!("{spec}:b")).is_err());
    fs::write(&place, old(&name, &[&config_bytes[..], b" "].concat())).unwrap();
    let error = open(&spec).unwrap_err().to_string();
    assert!(error.contains(".json: digest: expected sha256:"), "{error}");
    fs::write(&place, tar(&[common::symlink("manifest.json", "manifest.json")])).unwrap();
    assert!(open(&spec).unwrap_err().to_string().contains("kind: expected a regular file"));
    // New: a layout, with the list beside it; and a layout without the list.
    let blob = |digest: &str| format!("blobs/{}", digest.replace(':', "/"));
    let paths = [blob(&sha256(&lower)), blob(&sha256(&upper))];
    fs::write(layout.path().join("manifest.json"), list(&blob(&config), [&paths[0], &paths[1]])).unwrap();
    for parts in [&["blobs", "manifest.json", "index.json"][..], &["blobs", "index.json"]] {
        run(Command::new("tar").arg("-C").arg(layout.path()).arg("-cf").arg(&place).args(parts));
        assert_eq!(tree_of(&open(&spec).unwrap()), expected);
    }
}

#[test]
fn images_by_buildah_are_read() {
    if !has("buildah") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let storage = format!("--root={}", dir.path().join("root").display());
    let runroot = format!("--runroot={}", dir.path().join("run").display());
    let buildah = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "buildah", &storage, &runroot, "--storage-driver=vfs"]).args(args);
        command.env("BUILDAH_ISOLATION", "chroot").output().unwrap()
    };
    fs::write(dir.path().join("f"), "contents").unwrap();
    let from = buildah(&["from", "scratch"]);
    if !from.status.success() {
        println!("skipped: buildah does not work here: {}", String::from_utf8_lossy(&from.stderr));
        return;
    }
    let name = String::from_utf8(from.stdout).unwrap().trim().to_owned();
    let target = format!("oci:{}:t", dir.path().join("image").display());
    for args in [
        &["copy", "--chown=5:6", &name, dir.path().join("f").to_str().unwrap(), "/etc/f"][..],
        &["config", "--env", "A=b", &name],
        &["commit", "--disable-compression=false", &name, &target],
    ] {
        let output = buildah(args);
        if !output.status.success() {
            println!("skipped: buildah does not work here: {}", String::from_utf8_lossy(&output.stderr));
            return;
        }
    }
    let image = open(&target).unwrap();
    assert!(image.config().env.contains(&"A=b".to_owned()));
    let mut tree = new_tree();
    image.apply(&mut tree, &()).unwrap();
    let attr = tree.node(tree.find(Path::new("etc/f")).unwrap().unwrap()).attr;
    assert_eq!((attr.uid, attr.gid, attr.size), (5, 6, 8));
    println!("an image by buildah was read");
}

#[test]
fn the_image_for_a_platform_is_chosen() {
    let mut layout = Layout::new();
    let image = |architecture: &str, text: &str| {
        let layer = tar(&[file("a", text)]);
        let config = layout.config(&[sha256(&layer)], architecture);
        let mut manifest = layout.manifest(&config, &[layout.blob(LAYER, &layer)]);
        manifest["platform"] = json!({ "os": "linux", "architecture": architecture });
        manifest
    };
    let (amd, arm) = (image("amd64", "amd"), image("arm64", "arm"));
    let mut statement = image("none", "statement");
    statement["platform"] = json!({ "os": "unknown", "architecture": "unknown" });
    let mut bare = arm.clone();
    bare.as_object_mut().unwrap().remove("platform");
    let inner = json!({ "schemaVersion": 2, "manifests": [amd.clone(), bare, statement] });
    let mut nested = layout.json(INDEX, &inner);
    nested["annotations"] = json!({ "org.opencontainers.image.ref.name": "multi" });
    let mut single = arm;
    single["annotations"] = json!({ "io.containerd.image.name": "docker.io/library/arm:1" });
    layout.manifests = vec![nested, single];
    layout.save();
    let open = |tag: &str, platform: Option<&str>| {
        let platform = platform.map(|text| text.parse().unwrap());
        Image::open(&layout.place(tag), &OpenOptions { platform, ..OpenOptions::default() }, &())
            .map(|image| image.config().architecture.clone())
            .map_err(|error| error.to_string())
    };
    assert_eq!(open("multi", Some("linux/amd64")).unwrap(), "amd64");
    assert_eq!(open("multi", Some("linux/arm64")).unwrap(), "arm64");
    assert_eq!(open("", Some("linux/amd64")).unwrap(), "amd64");
    assert_eq!(open("docker.io/library/arm:1", None).unwrap(), "arm64");
    if std::env::consts::ARCH == "x86_64" {
        assert_eq!(open("multi", None).unwrap(), "amd64");
    }
    let error = open("multi", Some("linux/s390x")).unwrap_err();
    assert!(error.contains("for linux/s390x with the tag `multi`, found images for"), "{error}");
    assert!(
        open("docker.io/library/arm:1", Some("linux/amd64")).unwrap_err().contains("found images for `linux/arm64`")
    );
    let error = open("none", None).unwrap_err();
    assert!(error.contains("found none; the tags are `multi, docker.io/library/arm:1`"), "{error}");
    let mut two = Layout::new();
    two.image("one", &[simple()]);
    two.image("two", &[tar(&[file("b", "b")])]);
    let error = two.open("").unwrap_err().to_string();
    assert!(error.contains("found 2; the tags are `one, two`"), "{error}");
    assert!(two.open("one").is_ok());
}

#[test]
fn damaged_blobs_are_refused() {
    let with = |damage: &dyn Fn(&Layout, &str)| {
        let mut layout = Layout::new();
        let layer = simple();
        layout.image("t", std::slice::from_ref(&layer));
        damage(&layout, &sha256(&layer));
        failure(&layout, "t")
    };
    let error = with(&|layout, digest| {
        let mut bytes = fs::read(layout.blob_path(digest)).unwrap();
        bytes[5] ^= 1;
        fs::write(layout.blob_path(digest), bytes).unwrap();
    });
    assert!(error.contains("layer 0: digest: expected sha256:"), "{error}");
    let error = with(&|layout, digest| {
        let bytes = fs::read(layout.blob_path(digest)).unwrap();
        fs::write(layout.blob_path(digest), &bytes[..1000]).unwrap();
    });
    assert!(error.contains("size: expected 2560 bytes, found 1000 bytes"), "{error}");
    let error = with(&|layout, digest| fs::remove_file(layout.blob_path(digest)).unwrap());
    assert!(error.contains(": layer 0 (blobs/sha256/"), "{error}");
    let error = with(&|layout, digest| {
        fs::remove_file(layout.blob_path(digest)).unwrap();
        run(Command::new("mkfifo").arg(layout.blob_path(digest)));
    });
    assert!(error.contains("kind: expected a regular file, found something else"), "{error}");
    for part in ["config", "manifest"] {
        let error = with(&|layout, _| {
            let mut digest = layout.manifests[0]["digest"].as_str().unwrap().to_owned();
            if part == "config" {
                let manifest: Value = serde_json::from_slice(&fs::read(layout.blob_path(&digest)).unwrap()).unwrap();
                digest = manifest["config"]["digest"].as_str().unwrap().to_owned();
            }
            let text = fs::read_to_string(layout.blob_path(&digest)).unwrap();
            fs::write(layout.blob_path(&digest), text.replace("linux", "Linux").replace("tar", "Tar")).unwrap();
        });
        assert!(error.contains("digest: expected sha256:"), "{part}: {error}");
    }
}

/// Changes the manifest, the DiffIDs and the layers of an image.
type Change<'a> = &'a dyn Fn(&Layout, &mut Value, &mut Vec<String>, &mut Vec<Value>);

/// Opens an image with these changes, and applies it: the failure contains the text.
fn check(cases: &[(&str, Change<'_>)]) {
    let layer = simple();
    for (expected, change) in cases {
        let mut layout = Layout::new();
        let (mut diff_ids, mut blobs) = (vec![sha256(&layer)], vec![layout.blob(LAYER, &layer)]);
        let mut manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST });
        change(&layout, &mut manifest, &mut diff_ids, &mut blobs);
        let config = layout.config(&diff_ids, "amd64");
        if manifest.get("config").is_none() {
            manifest["config"] = config;
        }
        manifest["layers"] = json!(blobs);
        let manifest = layout.json(MANIFEST, &manifest);
        layout.manifests.push(manifest);
        layout.save();
        let error = failure(&layout, "");
        assert!(error.contains(expected), "expected `{expected}`, found `{error}`");
    }
}

#[test]
fn lies_about_digests_and_sizes_are_refused() {
    let layer = simple();
    let other = format!("sha256:{}", "0".repeat(64));
    check(&[
        ("DiffID: expected sha256:0000", &|_, _, ids, _| ids[0] = other.clone()),
        ("DiffID: expected sha256:0000", &|layout, _, ids, blobs| {
            ids[0] = other.clone();
            blobs[0] = layout.blob(&format!("{LAYER}+gzip"), &gzip(&layer));
        }),
        ("count of DiffIDs: expected 1, one for each layer, found 0", &|_, _, ids, _| ids.clear()),
        (
            "digest: expected sha256 or sha512, a colon, and their hexadecimal digits in lower case, found `md5:00`",
            &|_, _, ids, _| {
                ids[0] = "md5:00".into();
            },
        ),
        ("found `sha256:../../etc/passwd`", &|_, _, _, blobs| blobs[0]["digest"] = json!("sha256:../../etc/passwd")),
        ("expected 7 bytes, found 2560 bytes", &|_, _, _, blobs| blobs[0]["size"] = json!(7)),
        ("invalid value: integer `-1`", &|_, _, _, blobs| blobs[0]["size"] = json!(-1)),
    ]);
}

#[test]
fn other_kinds_of_documents_and_layers_are_refused() {
    let layer = simple();
    let other = format!("sha256:{}", "0".repeat(64));
    check(&[
        ("found `application/vnd.oci.image.layer.v1.tar+gzip+encrypted`", &|_, _, _, blobs| {
            blobs[0]["mediaType"] = json!(format!("{LAYER}+gzip+encrypted"));
        }),
        ("media type: expected tar, plain or compressed", &|_, _, _, blobs| blobs[0]["mediaType"] = json!("x/y")),
        (
            "which is not distributed with its image (application/vnd.docker.image.rootfs.foreign.diff.tar.gzip)",
            &|_, _, _, blobs| {
                let media_type = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
                blobs[0] = json!({ "mediaType": media_type, "size": 7, "digest": other, "urls": ["https://x/y"] });
            },
        ),
        ("schema version: expected 2, found `1`", &|_, manifest, _, _| manifest["schemaVersion"] = json!(1)),
        ("found `application/vnd.oci.image.index.v1+json`", &|_, manifest, _, _| manifest["mediaType"] = json!(INDEX)),
        ("media type of the configuration: expected that of a container image", &|layout, manifest, _, _| {
            manifest["config"] = layout.json("application/vnd.cncf.helm.config.v1+json", &json!({}));
        }),
        ("expected a configuration, found other JSON", &|layout, manifest, _, _| {
            manifest["config"] = layout.json(CONFIG, &json!({ "rootfs": 7 }));
        }),
        ("bytes of a JSON document: expected 8388608 at most, found more", &|layout, manifest, _, _| {
            manifest["config"] = layout.blob(CONFIG, &vec![b' '; 9 << 20]);
        }),
        ("recursion limit exceeded", &|layout, manifest, _, _| {
            manifest["config"] = layout.blob(CONFIG, &[&b"{\"x\":"[..], &[b'['; 1 << 20]].concat());
        }),
        ("decompressing the layer: ", &|layout, _, _, blobs| {
            let packed = gzip(&layer);
            blobs[0] = layout.blob(&format!("{LAYER}+gzip"), &packed[..packed.len() - 20]);
        }),
        ("layer 0: ", &|layout, _, ids, blobs| {
            let text = b"no tar archive at all";
            ids[0] = sha256(text);
            blobs[0] = layout.blob(LAYER, text);
        }),
    ]);
}

#[test]
fn indexes_cannot_go_round_or_explode() {
    let mut layout = Layout::new();
    // A digest cannot be its own, so an index that names itself is one with a wrong digest.
    let entry = json!({ "mediaType": INDEX, "digest": sha256(b"x"), "size": 200 });
    let text = serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] })).unwrap();
    let padded = [text.clone(), vec![b' '; 200 - text.len()]].concat();
    fs::write(layout.blob_path(&sha256(b"x")), padded).unwrap();
    layout.manifests = vec![entry];
    layout.save();
    let error = layout.open("").unwrap_err().to_string();
    assert!(error.contains("digest: expected sha256:"), "{error}");
    // Deep nesting, and an index that refers to the next one many times.
    let mut inner = layout.json(INDEX, &json!({ "schemaVersion": 2, "manifests": [] }));
    for _ in 0..12 {
        inner = layout.json(INDEX, &json!({ "schemaVersion": 2, "manifests": vec![inner; 300] }));
    }
    layout.manifests = vec![inner];
    layout.save();
    let error = layout.open("").unwrap_err().to_string();
    assert!(error.contains("nesting of indexes: expected 8 at most, found more"), "{error}");
    let entries: Vec<Value> =
        (0..5000).map(|n| json!({ "mediaType": MANIFEST, "digest": format!("sha256:{n:064x}"), "size": 1 })).collect();
    layout.manifests = vec![layout.json(INDEX, &json!({ "schemaVersion": 2, "manifests": entries }))];
    layout.save();
    let error = layout.open("").unwrap_err().to_string();
    assert!(error.contains("entries of indexes: expected 4096 at most, found more"), "{error}");
    fs::write(layout.path().join("index.json"), vec![b' '; 9 << 20]).unwrap();
    assert!(layout.open("").unwrap_err().to_string().contains("bytes of a JSON document"));
    fs::write(layout.path().join("index.json"), r#"{"manifests":null}"#).unwrap();
    assert!(layout.open("").unwrap_err().to_string().contains("found none; the tags are ``"));
    fs::remove_file(layout.path().join("index.json")).unwrap();
    assert!(layout.open("").unwrap_err().to_string().contains("the index of an OCI image layout (index.json)"));
    assert!(open("oci-archive:/dev/null").is_err() && open("docker-archive:/none").is_err());
}

#[test]
fn a_bomb_ends_at_the_limit() {
    let mut layout = Layout::new();
    let zeros = tar(&[common::Member { data: vec![0; 8 << 20], ..file("zeros", "") }]);
    let blob = layout.blob(&format!("{LAYER}+gzip"), &gzip(&zeros));
    layout.add("t", &[sha256(&zeros)], &[blob]);
    let mut options = OpenOptions::default();
    options.read.max_bytes = 1 << 20;
    let image = Image::open(&layout.place("t"), &options, &()).unwrap();
    let error = image.apply(&mut new_tree(), &()).unwrap_err().to_string();
    assert!(error.contains("layer 0: "), "{error}");
    assert!(layout.open("t").unwrap().apply(&mut new_tree(), &()).is_ok());
}

#[test]
fn mutated_documents_are_refused_or_read() {
    let seed = 0x5eed_0002;
    println!("seed {seed:#x}");
    let mut random = Random(seed);
    let mut layout = Layout::new();
    let layer = simple();
    let blob = layout.blob(LAYER, &layer);
    let config = layout.config(&[sha256(&layer)], "amd64");
    let config_bytes = fs::read(layout.blob_path(config["digest"].as_str().unwrap())).unwrap();
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [blob] });
    let manifest_bytes = serde_json::to_vec(&manifest).unwrap();
    layout.manifests = vec![layout.json(MANIFEST, &manifest)];
    layout.save();
    let index_bytes = fs::read(layout.path().join("index.json")).unwrap();
    let docker = json!([{ "Config": "config.json", "RepoTags": ["a:b"], "Layers": ["layer.tar"] }]);
    let docker_bytes = serde_json::to_vec(&docker).unwrap();
    let place: Place = format!("docker-archive:{}", layout.path().join("docker.tar").display()).parse().unwrap();
    let (mut read, mut refused) = (0, 0);
    let mut count = |result: layers::Result<()>| match result {
        Ok(()) => read += 1,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            refused += 1;
        }
    };
    let apply = |image: Image| image.apply(&mut new_tree(), &());
    let cases = std::env::var("LAYERS_CASES").map_or(CASES, |text| text.parse().unwrap());
    for round in 0..cases {
        if round % 4 == 3 {
            let (list, config) = if round % 8 == 3 {
                (random.mutate(&docker_bytes), config_bytes.clone())
            } else {
                (docker_bytes.clone(), random.mutate(&config_bytes))
            };
            let member = |path: &str, data: &[u8]| common::Member { data: data.to_vec(), ..file(path, "") };
            let archive =
                tar(&[member("manifest.json", &list), member("config.json", &config), member("layer.tar", &layer)]);
            fs::write(&place.path, archive).unwrap();
            count(Image::open(&place, &OpenOptions::default(), &()).and_then(apply));
            continue;
        }
        let index = match round % 4 {
            0 => random.mutate(&index_bytes),
            part => {
                // The documents above say the right digests, so that the mutated one is parsed.
                let mut manifest = manifest.clone();
                let bytes = if part == 1 {
                    random.mutate(&manifest_bytes)
                } else {
                    let bytes = random.mutate(&config_bytes);
                    manifest["config"] = layout.blob(CONFIG, &bytes);
                    serde_json::to_vec(&manifest).unwrap()
                };
                let entry = layout.blob(MANIFEST, &bytes);
                serde_json::to_vec(&json!({ "schemaVersion": 2, "manifests": [entry] })).unwrap()
            }
        };
        fs::write(layout.path().join("index.json"), &index).unwrap();
        count(layout.open("").and_then(apply));
    }
    println!("{read} read, {refused} refused");
    assert!(read > cases / 40 && refused > cases / 20);
}
