//! A damaged image gives the same message through C as the program prints.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::{null, null_mut};

use spinney::{MakeOptions, VolumeOptions};
use spinney_capi::*;

use super::installed::{output, program};
use super::misuse::{message, text};

/// A change of an image.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

/// An image with the file `f`, whose contents are found in the image by their bytes.
fn image(dir: &Path) -> PathBuf {
    let image = dir.join("a.img");
    let volume = spinney::make(&image, "btrfs", &MakeOptions::new().size(64 << 20)).unwrap();
    volume.write("f", contents()).unwrap();
    volume.close().unwrap();
    image
}

fn contents() -> Vec<u8> {
    (0..20_000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect()
}

/// The message of opening the image and reading the file.
fn message_of_c(image: &Path) -> String {
    let (image, path) = (text(image.to_str().unwrap()), text("f"));
    let (mut volume, mut file) = (null_mut(), null_mut());
    let mut options: SpinneyOpenOptions = unsafe { std::mem::zeroed() };
    (options.struct_size, options.flags) = (size_of::<SpinneyOpenOptions>(), SPINNEY_READ_ONLY);
    let mut buffer = vec![0u8; 100_000];
    unsafe {
        if spinney_open(image.as_ptr(), &raw const options, &raw mut volume) < 0 {
            return message::<u8>(null());
        }
        if spinney_file_open(volume, path.as_ptr(), SPINNEY_FILE_READ, 0, &raw mut file) < 0 {
            return message(volume);
        }
        assert!(spinney_file_read(file, buffer.as_mut_ptr().cast(), buffer.len(), 0) < 0, "the image is not damaged");
        let text = message(file);
        spinney_close(file.cast());
        spinney_close(volume.cast());
        text
    }
}

/// The first line that the program prints when it reads the file; `None` where it is not built.
fn message_of_program(image: &Path) -> Option<String> {
    let read = output(Command::new(program()?).arg("cat").arg(image).arg("f"));
    assert!(!read.status.success());
    Some(String::from_utf8_lossy(&read.stderr).lines().next().unwrap().trim_start_matches("spinney: ").to_owned())
}

#[test]
fn the_messages_are_those_of_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fs::read(image(dir.path())).unwrap();
    let begin = contents()[..64].to_vec();
    let at = whole.windows(64).position(|window| window == begin).expect("the contents are in the image");
    let damage: [(&str, Damage<'_>); 4] = [
        ("data", &|bytes| bytes[at + 10] ^= 1),
        ("no superblock", &|bytes| bytes[0x10000..0x11000].fill(0)),
        ("cut", &|bytes| bytes.truncate(1 << 20)),
        ("superblock", &|bytes| bytes[0x10000 + 0x90] ^= 1),
    ];
    for (name, change) in damage {
        let path = dir.path().join(format!("{name}.img"));
        let mut bytes = whole.clone();
        change(&mut bytes);
        fs::write(&path, bytes).unwrap();
        let of_c = message_of_c(&path);
        let of_rust = match spinney::open(&path, &VolumeOptions::new().read_only(true)) {
            Ok(volume) => spinney::message(&volume.read("f").unwrap_err()),
            Err(error) => spinney::message(&error),
        };
        println!("{name}: {of_c}");
        // An open file does not know its path.
        assert!(of_rust.ends_with(&of_c), "{name}: {of_rust}: {of_c}");
        match message_of_program(&path) {
            // Of a file in which it recognises no image, the program says what the file looks like instead.
            Some(of_program) if name == "no superblock" => assert!(of_program.contains("no btrfs or f2fs image")),
            // The program may name the image elsewhere, and adds a remedy.
            Some(of_program) => {
                let cause = of_c.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&of_c);
                assert!(of_program.contains(cause), "{name}: {of_program}: {cause}");
            }
            None => println!("SKIPPED: the program is not built"),
        }
    }
}
