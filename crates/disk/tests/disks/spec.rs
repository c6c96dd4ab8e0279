//! Descriptions of disks: what they mean, how they are refused, where their partitions lie.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use crate::common::{Place, Random, run, tool};
use disk::containers::{Compression, Form};
use disk::spec::{Contents, Layout, OptionValue, Partition, Size, Spec, plan};
use disk::{Error, Result};

const MIB: u64 = 1 << 20;

const WHOLE: &str = r#"
[disk]
size = "8G"
sector-size = 512
uuid = "6f1c5d0e-4d52-4a39-9b4f-8a3e0c0f6a11"
label = "gpt"

[[partition]]
name = "esp"
type = "esp"
size = "256M"
content = "esp.img"

[[partition]]
name = "swap"
type = "swap"
size = "1G"
format = "swap"
label = "swap area"

[[partition]]
name = "var"
type = "4d21b016-b534-45c2-a9fb-5c16e091fd2d"
size = "20%"
attributes = ["read-only", "no-auto"]

[[partition]]
name = "root"
type = "root-x86-64"
size = "rest"
format = "any"
label = "root"
uuid = "00000000-0000-4000-8000-000000000001"
sources = ["rootfs.tar.zst", "overlay/"]
subvolumes = [ { path = "@home", mode = "rw" }, { path="@", default = true }, { path = "@old", mode = "ro" } ]
options = { compress = "zstd:9", csum = "xxhash64", nodesize="16K", threads = 4, discard = true }
shrink = true
owner = "0:0"
all-root = true
verity = ["usr/**"]

[output]
file = "disk.qcow2"
compress = "zstd:9"
"#;

fn parse(text: &str) -> Result<Spec> {
    Spec::parse(text, Path::new("images/SPEC.toml"))
}

fn planned(text: &str, minimum: u64) -> Result<Layout> {
    plan(&parse(text)?, |_: &Partition| Ok::<_, std::io::Error>(minimum))
}

#[test]
fn every_key_arrives() {
    let spec = parse(WHOLE).unwrap();
    assert_eq!(spec.disk.size_bytes, Some(8 << 30));
    let [esp, swap, var, root] = spec.partitions.as_slice() else { panic!("{:?}", spec.partitions) };
    assert_eq!(esp.contents, Contents::File("images/esp.img".into()));
    assert!(matches!(&swap.contents, Contents::Swap { label, .. } if label == "swap area"));
    assert_eq!((var.size, var.attributes.to_string().as_str()), (Size::Percent(20), "read-only,no-auto"));
    let Contents::FileSystem(made) = &root.contents else { panic!("{root:?}") };
    assert_eq!(made.sources, ["rootfs.tar.zst", "overlay/"]);
    assert_eq!(made.options["threads"], OptionValue::Number(4));
    assert_eq!(made.options["discard"].to_string(), "true");
    assert_eq!(made.subvolumes.len(), 3);
    assert!(made.shrink && made.all_root && made.owner.is_some());
    assert_eq!(spec.path_of("overlay/"), Path::new("images/overlay/"));
    assert_eq!(spec.path_of("/abs"), Path::new("/abs"));
    let output = spec.output.unwrap();
    assert_eq!((output.form, output.compression), (Form::Qcow2, Compression::Zstd(9)));
    assert_eq!(output.file, Path::new("images/disk.qcow2"));
}

#[test]
fn the_plan_fills_the_disk() {
    let layout = planned(WHOLE, 100 * MIB).unwrap();
    let places: Vec<_> = layout.partitions.iter().map(|one| (one.start_bytes / MIB, one.size_bytes / MIB)).collect();
    assert_eq!(places, [(1, 256), (257, 1024), (1281, 1638), (2919, 8191 - 2919)]);
    println!("{layout}");
    let told = layout.to_string();
    assert!(told.starts_with("images/disk.qcow2 (qcow2): 8 GiB (8589934592 bytes), gpt 6f1c5d0e-"), "{told}");
    assert!(told.contains("├──   1 esp   at         1048576     256 MiB  esp: file images/esp.img\n"), "{told}");
    let json = serde_json::to_value(&layout).unwrap();
    assert_eq!(json["partitions"][3]["contents"]["file-system"]["options"]["nodesize"], "16K");
    assert_eq!(json["partitions"][0]["type-name"], "esp");
    assert_eq!(json["sector-size"], 512);
    // The same description gives the same identifiers, another disk others.
    assert_eq!(planned(WHOLE, 100 * MIB).unwrap(), layout);
    let other = planned(&WHOLE.replace("6f1c5d0e", "6f1c5d0f"), 100 * MIB).unwrap();
    assert_ne!(other.partitions[0].id, layout.partitions[0].id);
}

#[test]
fn a_planned_disk_is_accepted_by_sgdisk() {
    let place = Place::new();
    for (text, disk_bytes) in [(WHOLE, 8_u64 << 30), (AUTO, (1 + 8 + 8 + 16 + 1) * MIB)] {
        let layout = planned(text, 8 * MIB).unwrap();
        assert_eq!(layout.disk_bytes, disk_bytes);
        let mut file = place.create("disk");
        file.set_len(layout.disk_bytes).unwrap();
        layout.table().unwrap().unwrap().write(&mut file).unwrap();
        let Some(sgdisk) = tool("sgdisk") else { return };
        let verified = run(Command::new(sgdisk).arg("-v").arg(place.path("disk")));
        assert!(verified.contains("No problems found"), "{verified}");
    }
}

const AUTO: &str = r#"
[[partition]]
format = "any"
[[partition]]
size = "rest"
content = "file"
[[partition]]
size = "16M"
"#;

#[test]
fn a_disk_is_as_large_as_its_partitions() {
    let layout = planned(AUTO, 5 * MIB + 1).unwrap();
    let places: Vec<_> = layout.partitions.iter().map(|one| (one.start_bytes, one.size_bytes)).collect();
    let size = 5 * MIB + 4096;
    assert_eq!(places, [(MIB, size), (7 * MIB, size), (13 * MIB, 16 * MIB)]);
    assert_eq!(layout.disk_bytes, 30 * MIB);
    let whole = "[disk]\nlabel = \"none\"\n[[partition]]\nformat = \"any\"\n";
    let layout = planned(whole, 12_345).unwrap();
    assert_eq!((layout.disk_bytes, layout.partitions[0].size_bytes, layout.free_bytes()), (16_384, 16_384, 0));
    assert_eq!(layout.table().unwrap(), None);
    let sized = planned(&whole.replace("\"none\"", "\"none\"\nsize = \"1G\""), 0).unwrap();
    assert_eq!((sized.disk_bytes, sized.partitions[0].size_bytes), (1 << 30, 1 << 30));
    let shares = "[disk]\nsize = \"101M\"\n".to_owned() + &"[[partition]]\nsize = \"rest\"\n".repeat(3);
    let layout = planned(&shares, 0).unwrap();
    assert!(layout.partitions.iter().all(|one| one.size_bytes == 33 * MIB));
}

#[test]
fn what_does_not_fit_is_told_with_numbers() {
    let refused = |text: &str, minimum| planned(text, minimum).unwrap_err().to_string();
    let disk = |rest: &str| format!("[disk]\nsize = \"64M\"\n{rest}");
    assert_eq!(
        refused(&disk("[[partition]]\nname = \"a\"\nsize = \"64M\"\n"), 0),
        "partition 1 `a`: asks for 67108864 bytes (64 MiB), 66043392 bytes (62.9 MiB) are free, \
         1065472 bytes (1.0 MiB) are missing"
    );
    assert!(
        refused(&disk("[[partition]]\nsize = \"4M\"\ncontent = \"x\"\n"), 5 * MIB)
            .contains("1048576 bytes (1 MiB) are missing")
    );
    assert!(
        refused(&disk("[[partition]]\nsize = \"rest\"\ncontent = \"x\"\n"), 70 * MIB)
            .contains("65011712 bytes (62 MiB) are free")
    );
    let two = "[[partition]]\nsize = \"62M\"\n[[partition]]\nsize = \"rest\"\n";
    assert!(
        refused(&disk(two), 0)
            .starts_with("partition 2 ``: asks for 1048576 bytes (1 MiB), 0 bytes (0 bytes) are free")
    );
    assert!(refused(&disk("[[partition]]\nsize = \"1%\"\n"), 0).contains("asks for 1048576 bytes"));
    assert!(
        refused("[disk]\nsize = \"64K\"\n[[partition]]\nsize = \"rest\"\n", 0).starts_with("disk: expected a size of")
    );
    assert!(
        refused("[[partition]]\nsize = \"4K\"\nformat = \"swap\"\n", 0).contains("swap area: size: expected 40960")
    );
    let failed = plan(&parse(AUTO).unwrap(), |_| Err("no such file")).unwrap_err();
    assert_eq!(failed.to_string(), "partition 1 ``: how much it needs: no such file");
    assert!(refused(AUTO, u64::MAX).contains("asks for 18446744073709551615 bytes"));
    assert!(refused(AUTO, 1 << 62).contains("are missing"));
}

#[test]
fn a_mistake_is_told_with_its_line() {
    let changed = |from: &str, to: &str| {
        assert!(WHOLE.contains(from), "{from}");
        let error = parse(&WHOLE.replacen(from, to, 1)).unwrap_err();
        assert!(matches!(error, Error::Spec { .. }));
        error.to_string()
    };
    let cases = [
        ("sector-size", "sektor-size", "images/SPEC.toml:4: unknown field `sektor-size`, expected one of `size`, "),
        ("name = \"esp\"", "nam = \"esp\"", "images/SPEC.toml:9: unknown field `nam`"),
        ("\"8G\"", "\"8Q\"", "images/SPEC.toml:3: size `8Q`: expected bytes, a number with K, M, G or T"),
        ("\"8G\"", "1.5", "images/SPEC.toml:3: invalid type: floating point `1.5`, expected a text, a whole number"),
        ("\"8G\"", "-5", "images/SPEC.toml:3: "),
        ("\"8G\"", "1000", "images/SPEC.toml:2: size: expected whole sectors of 512 bytes, found 1000"),
        ("\"8G\"", "\"auto\"", "images/SPEC.toml:21: partition 3: size: expected no share of the disk"),
        ("= 512", "= 1024", "images/SPEC.toml:2: sector-size: expected 512 or 4096, found 1024"),
        ("type = \"esp\"", "type = \"eps\"", "images/SPEC.toml:10: type `eps`: expected a GUID or one of esp, "),
        ("\"read-only\"", "\"readonly\"", "images/SPEC.toml:25: attribute `readonly`: expected one of required"),
        ("content =", "format = \"any\"\ncontent =", "images/SPEC.toml:8: partition 1: content, format: expected one"),
        (
            "content = \"esp.img\"",
            "content = \"esp.img\"\nshrink = true",
            "partition 1: shrink: means nothing with content",
        ),
        ("mode = \"rw\"", "mode = \"wr\"", "images/SPEC.toml:35: unknown variant `wr`, expected `rw` or `ro`"),
        (
            "mode = \"rw\"",
            "default = true",
            "images/SPEC.toml:27: partition 4: subvolumes: expected one with `default`",
        ),
        ("@home", "@", "partition 4: subvolumes: `@`: expected once, found twice"),
        ("\"0:0\"", "\"root\"", "images/SPEC.toml:38: owner `root`: expected USER:GROUP in numbers"),
        ("threads = 4", "threads = [4]", "images/SPEC.toml:36: invalid type: sequence, expected a text"),
        ("compress = \"zstd:9\"\n", "compress = \"zip\"\n", "images/SPEC.toml:44: compression `zip`: expected none"),
        (
            "compress = \"zstd:9\"\n",
            "form = \"vmdk\"\n",
            "images/SPEC.toml:44: unknown variant `vmdk`, expected one of `raw`",
        ),
        ("\"gpt\"", "\"none\"", "images/SPEC.toml:14: [[partition]]: expected 1 to 1 of them, found 4"),
        ("\"swap area\"", "\"a label of 17 bytes\"", "partition 2: label: expected at most 15 bytes"),
        ("6f1c5d0e-", "6f1c5d0e", "images/SPEC.toml:5: "),
        ("[[partition]]", "[[partition]", "images/SPEC.toml:8: "),
    ];
    for (from, to, expected) in cases {
        let message = changed(from, to);
        assert!(message.contains(expected), "{from} -> {to}\n{message}\n{expected}");
        assert!(message.contains("images/SPEC.toml:"), "{message}");
    }
    assert!(parse("").unwrap_err().to_string().contains("[[partition]]: expected 1 to 128 of them, found 0"));
    let many = "[[partition]]\nsize = 4096\n".repeat(129);
    assert!(
        parse(&many).unwrap_err().to_string().starts_with("images/SPEC.toml:257: [[partition]]: expected 1 to 128")
    );
    assert!(parse(&"#".repeat(2 << 20)).is_err());
    let none = "[disk]\nlabel = \"none\"\nsize = \"1G\"\n[[partition]]\nformat = \"any\"\n";
    for (more, expected) in
        [("type = \"esp\"", "type: means nothing with label"), ("size = \"1M\"", "size: expected none")]
    {
        let message = parse(&format!("{none}{more}\n")).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_description_is_read_from_its_file() {
    let place = Place::new();
    std::fs::write(place.path("disk.toml"), "[[partition]]\ncontent = \"esp.img\"\n").unwrap();
    std::fs::write(place.path("esp.img"), vec![1; 9000]).unwrap();
    let spec = Spec::read(&place.path("disk.toml")).unwrap();
    let layout = plan(&spec, |partition| partition.file_bytes().map(Option::unwrap_or_default)).unwrap();
    assert_eq!(layout.partitions[0].size_bytes, 12_288);
    assert!(matches!(Spec::read(&place.path("none")), Err(Error::SpecIo { .. })));
    std::fs::write(place.path("noise"), [0xff; 100]).unwrap();
    assert!(Spec::read(&place.path("noise")).is_err());
    assert!(Spec::read(Path::new("/dev/zero")).is_err());
}

#[test]
fn twenty_thousand_changed_descriptions_are_errors_or_plans() {
    let mut random = Random::new(7);
    let words = [
        "\"rest\"",
        "\"auto\"",
        "\"100%\"",
        "\"1%\"",
        "\"8388607T\"",
        "0",
        "-1",
        "9223372036854775807",
        "\"none\"",
        "[[partition]]\n",
        "[disk]\n",
        "[[[[[[",
        "{{{{",
        "\"",
        "'''",
        "\u{0}",
        "= ",
        "\n",
        "true",
        "1e400",
        "\"swap\"",
        "content",
        "\u{fffd}",
    ];
    let (mut planned_count, mut refused_count) = (0, 0);
    for case in 0..20_000 {
        let mut text = WHOLE.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.index(text.len());
            match random.below(6) {
                4 => change_a_size(&mut text, &mut random),
                0 => text[at] = 32 + u8::try_from(random.below(95)).unwrap(),
                1 => drop(text.drain(at..(at + random.index(12)).min(text.len()))),
                2 => drop(text.splice(at..at, words[random.index(words.len())].bytes())),
                3 => {
                    // A whole value becomes another.
                    let lines: Vec<usize> =
                        text.iter().enumerate().filter(|(_, byte)| **byte == b'=').map(|(at, _)| at).collect();
                    if !lines.is_empty() {
                        let from = lines[random.index(lines.len())] + 1;
                        let to =
                            text[from..].iter().position(|byte| *byte == b'\n').map_or(text.len(), |len| from + len);
                        drop(text.splice(from..to, words[random.index(words.len())].bytes()));
                    }
                }
                _ if random.below(4) == 0 => text.truncate(at.max(text.len() / 2)),
                _ => {}
            }
            if text.is_empty() {
                break;
            }
        }
        let text = String::from_utf8_lossy(&text);
        let minimum = [0, 5 * MIB, 200 * MIB, u64::MAX][random.index(4)];
        match planned(&text, minimum) {
            Ok(layout) => {
                planned_count += 1;
                keeps_the_rules(&layout).unwrap_or_else(|error| panic!("case {case}: {error}\n{text}\n{layout}"));
            }
            Err(error) => {
                refused_count += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    println!("{planned_count} planned, {refused_count} refused");
    assert!(planned_count > 1000 && refused_count > 1000);
}

/// Another size for one of the partitions or the disk.
fn change_a_size(text: &mut Vec<u8>, random: &mut Random) {
    let whole = String::from_utf8_lossy(text).into_owned();
    let places: Vec<usize> = whole.match_indices("\nsize = ").map(|(at, key)| at + key.len()).collect();
    if places.is_empty() {
        return;
    }
    let at = places[random.index(places.len())];
    let end = whole[at..].find('\n').map_or(whole.len(), |len| at + len);
    let unit = ["", "K", "M", "G", "%"][random.index(5)];
    let bits = random.below(16);
    let size = match random.below(4) {
        0 => "\"rest\"".to_owned(),
        1 => "\"auto\"".to_owned(),
        _ => format!("\"{}{unit}\"", random.below(1 << bits)),
    };
    *text = format!("{}{size}{}", &whole[..at], &whole[end..]).into_bytes();
}

fn keeps_the_rules(layout: &Layout) -> std::result::Result<(), String> {
    let mut free_at = 0;
    for one in &layout.partitions {
        if one.start_bytes < free_at || one.size_bytes == 0 || one.end_bytes() > layout.disk_bytes {
            return Err(format!("partition {} at {}", one.number, one.start_bytes));
        }
        free_at = one.end_bytes();
    }
    // Identifiers may be given twice: the table says so.
    match layout.table() {
        Ok(_) => Ok(()),
        Err(Error::Partition { expected, .. }) if expected == "an identifier of its own" => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}
