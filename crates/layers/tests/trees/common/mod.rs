//! Builds tar archives, layers and OCI layouts byte by byte, and lists trees so that they can be compared. The tests of
//! images use it.

#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};
use transfer::{Observer, Tree};
use vfs::file_system::Time;

/// A member of a tar archive.
#[derive(Clone)]
pub struct Member {
    pub path: String,
    pub kind: u8,
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: u64,
    pub link: String,
    pub data: Vec<u8>,
    pub device: (u32, u32),
    pub pax: Vec<(String, Vec<u8>)>,
}

impl Member {
    pub fn new(path: &str, kind: u8, mode: u32) -> Self {
        let (link, data, pax) = (String::new(), Vec::new(), Vec::new());
        Self { path: path.into(), kind, mode, owner: (0, 0), mtime: 1000, link, data, device: (0, 0), pax }
    }

    pub fn owner(self, uid: u32, gid: u32) -> Self {
        Self { owner: (uid, gid), ..self }
    }

    pub fn mtime(self, mtime: u64) -> Self {
        Self { mtime, ..self }
    }

    pub fn mode(self, mode: u32) -> Self {
        Self { mode, ..self }
    }

    pub fn xattr(mut self, name: &str, value: &[u8]) -> Self {
        self.pax.push((format!("SCHILY.xattr.{name}"), value.to_vec()));
        self
    }

    fn push(&self, out: &mut Vec<u8>) {
        if !self.pax.is_empty() {
            let mut records = Vec::new();
            for (key, value) in &self.pax {
                let body = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
                let length = (body.len() + 1..).find(|length| length.to_string().len() + body.len() == *length);
                records.extend(length.unwrap().to_string().into_bytes());
                records.extend(body);
            }
            let pax = Self { data: records, ..Self::new("pax", b'x', 0o644) };
            pax.push(out);
        }
        let mut header = [0; 512];
        let mut set = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        set(0, self.path.as_bytes());
        set(100, format!("{:07o}\0", self.mode).as_bytes());
        set(108, format!("{:07o}\0", self.owner.0).as_bytes());
        set(116, format!("{:07o}\0", self.owner.1).as_bytes());
        set(124, format!("{:011o}\0", self.data.len()).as_bytes());
        set(136, format!("{:011o}\0", self.mtime).as_bytes());
        set(148, b"        ");
        set(156, &[self.kind]);
        set(157, self.link.as_bytes());
        set(257, b"ustar\x0000");
        set(329, format!("{:07o}\0", self.device.0).as_bytes());
        set(337, format!("{:07o}\0", self.device.1).as_bytes());
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend(header);
        out.extend(&self.data);
        out.resize(out.len().next_multiple_of(512), 0);
    }
}

pub fn dir(path: &str) -> Member {
    Member::new(path, b'5', 0o755)
}

pub fn file(path: &str, text: &str) -> Member {
    Member { data: text.into(), ..Member::new(path, b'0', 0o644) }
}

pub fn symlink(path: &str, target: &str) -> Member {
    Member { link: target.into(), ..Member::new(path, b'2', 0o777) }
}

pub fn hard(path: &str, first: &str) -> Member {
    Member { link: first.into(), ..Member::new(path, b'1', 0o644) }
}

pub fn device(path: &str, kind: u8, major: u32, minor: u32) -> Member {
    Member { device: (major, minor), ..Member::new(path, kind, 0o600) }
}

pub fn tar(members: &[Member]) -> Vec<u8> {
    let mut out = Vec::new();
    members.iter().for_each(|member| member.push(&mut out));
    out.resize(out.len() + 1024, 0);
    out
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

pub fn sha512(bytes: &[u8]) -> String {
    format!("sha512:{}", hex(&Sha512::digest(bytes)))
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// An OCI layout in a directory.
pub struct Layout {
    pub dir: tempfile::TempDir,
    pub manifests: Vec<Value>,
}

pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

impl Layout {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("blobs/sha256")).unwrap();
        fs::create_dir_all(dir.path().join("blobs/sha512")).unwrap();
        fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        Self { dir, manifests: Vec::new() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a blob; returns its descriptor.
    pub fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = sha256(bytes);
        fs::write(self.blob_path(&digest), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    pub fn blob_path(&self, digest: &str) -> PathBuf {
        self.path().join("blobs").join(digest.replacen(':', "/", 1))
    }

    pub fn json(&self, media_type: &str, value: &Value) -> Value {
        self.blob(media_type, &serde_json::to_vec(value).unwrap())
    }

    pub fn config(&self, diff_ids: &[String], architecture: &str) -> Value {
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": { "Env": ["PATH=/bin"], "Entrypoint": ["/bin/sh"], "Cmd": null, "Labels": { "a": "b" } },
            "rootfs": { "type": "layers", "diff_ids": diff_ids }
        });
        self.json(CONFIG, &config)
    }

    pub fn manifest(&self, config: &Value, layers: &[Value]) -> Value {
        let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers });
        self.json(MANIFEST, &manifest)
    }

    /// Adds an image of uncompressed layers under a tag.
    pub fn image(&mut self, tag: &str, layers: &[Vec<u8>]) {
        let diff_ids: Vec<String> = layers.iter().map(|layer| sha256(layer)).collect();
        let blobs: Vec<Value> = layers.iter().map(|layer| self.blob(LAYER, layer)).collect();
        self.add(tag, &diff_ids, &blobs);
    }

    /// Adds an image of these layers under a tag.
    pub fn add(&mut self, tag: &str, diff_ids: &[String], blobs: &[Value]) {
        let config = self.config(diff_ids, "amd64");
        let mut manifest = self.manifest(&config, blobs);
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
        self.manifests.push(manifest);
        self.save();
    }

    pub fn save(&self) {
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests });
        fs::write(self.path().join("index.json"), serde_json::to_vec(&index).unwrap()).unwrap();
    }

    pub fn place(&self, tag: &str) -> layers::oci::Place {
        layers::oci::Place {
            storage: layers::oci::Storage::Layout,
            path: self.path().to_owned(),
            tag: Some(tag.to_owned()).filter(|tag| !tag.is_empty()),
        }
    }

    pub fn open(&self, tag: &str) -> layers::Result<layers::oci::Image> {
        layers::oci::Image::open(&self.place(tag), &layers::oci::OpenOptions::default(), &())
    }
}

pub fn new_tree() -> Tree {
    Tree::new(Time::default())
}

/// Whether a program is installed; prints a line if not.
pub fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap().status.success();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// Runs a command, which has to succeed.
pub fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The composefs dump of a tree, with the digests of contents.
pub fn listed(tree: &Tree) -> Vec<String> {
    let mut dump = Vec::new();
    layers::manifest::write_composefs_dump(tree, &mut dump).unwrap();
    let mut lines: Vec<String> = String::from_utf8(dump).unwrap().lines().map(str::to_owned).collect();
    for ((path, number), line) in tree.walk().zip(&mut lines) {
        let contents = tree.node(number).contents.as_ref().map(|stored| stored.open().unwrap());
        let Some(contents) = contents else { continue };
        let mut bytes = vec![0; usize::try_from(contents.size().unwrap()).unwrap()];
        let mut at = 0;
        while at < bytes.len() {
            let count = contents.read_at(&mut bytes[at..], u64::try_from(at).unwrap()).unwrap();
            assert!(count > 0, "{}", path.display());
            at += count;
        }
        line.push_str(&format!(" {}", hex(&Sha256::digest(&bytes))));
    }
    lines
}

/// The same, without the times of the directories in `tree` that no source described, or in which one lies (umoci
/// leaves the time of its run there), and without the root.
pub fn listed_loosely(listed: &[String], tree: &Tree) -> Vec<String> {
    let loose = |line: &String| {
        let mut words: Vec<&str> = line.split(' ').collect();
        let path = words[0].to_owned();
        let number = tree.find(Path::new(&path)).ok().flatten();
        let has_implied = |number| tree.names(number).any(|(_, inside)| tree.is_implied(inside));
        if number.is_some_and(|number| tree.is_implied(number) || has_implied(number)) {
            words[7] = "implied";
        }
        // File systems count the links of directories in their own ways.
        if words[2].starts_with('4') {
            words[3] = "n";
        }
        words.join(" ")
    };
    listed.iter().skip(1).map(loose).collect()
}

/// A directory of the host as a tree.
pub fn host_tree(dir: &Path) -> Tree {
    let mut tree = new_tree();
    layers::host::read_into(&mut tree, dir, &layers::host::HostReadOptions::default(), &()).unwrap();
    tree
}

/// A generator of numbers by xorshift.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }

    /// Changes a few bytes: flips, inserts, removes, copies.
    pub fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = self.below(bytes.len());
            match self.below(6) {
                0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
                1 => bytes.insert(at, b"\0 \n\\=@:/.-0\xff\"{}[]"[self.below(17)]),
                2 if !bytes.is_empty() => {
                    bytes.remove(at);
                }
                3 => bytes.truncate(at),
                4 => {
                    let end = (at + self.below(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = self.below(bytes.len());
                    bytes.splice(to..to, part);
                }
                _ => {
                    let digits = ["18446744073709551615", "-1", "4294967295", "999999999999999999999", "../..", "null"];
                    let part = digits[self.below(digits.len())].bytes();
                    bytes.splice(at..at, part);
                }
            }
        }
        bytes
    }
}

pub fn read_gzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

/// Lets everything pass, and counts.
#[derive(Default)]
pub struct Watch {
    pub failed: std::sync::Mutex<Vec<String>>,
    pub lost: std::sync::Mutex<Vec<transfer::Loss>>,
}

impl Observer for Watch {
    fn lost(&self, what: transfer::Loss) {
        self.lost.lock().unwrap().push(what);
    }

    fn failed(&self, error: transfer::Error) -> transfer::Result<()> {
        self.failed.lock().unwrap().push(error.to_string());
        Ok(())
    }
}
