//! Makes scenes of contents: positions and forms of the blocks of files. `recipes` lists them.

use super::scene::{BLOCK, Scene, checkpoint, f2fs_io, knob, open};
use crate::system::run;
use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, IFlags};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;
use testkit::Random;

pub(super) const LAYOUTS: Scene = Scene { name: "layouts", run: layouts };
pub(super) const DEEP: Scene = Scene { name: "deep", run: deep };
pub(super) const AGED: Scene = Scene { name: "aged", run: aged };
pub(super) const AGED_AGAIN: Scene = Scene { name: "aged-again", run: aged };
pub(super) const COLLECTED: Scene = Scene { name: "collected", run: collected };
pub(super) const HALF_FULL: Scene = Scene { name: "half-full", run: half_full };
pub(super) const COMPRESSED: Scene = Scene { name: "compressed", run: compressed };
pub(super) const VERITY: Scene = Scene { name: "verity", run: verity };

/// Every layout of the bytes of a file: inline, in blocks, preallocated, holes.
fn layouts(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let create = |name: &str| open(&folder.join(name));
    // Inline data ends at 3,488 bytes, or 3,688 without attributes in the inode, or earlier in larger inodes.
    for len in [0, 1, 100, 3451, 3452, 3453, 3487, 3488, 3489, 3688, 3689, 4095, 4096, 4097, 131_072, 1_000_000] {
        create(&format!("len-{len}"))?.write_all_at(&random.content(len), 0)?;
    }
    let sparse = create("sparse")?;
    for position in [0u64, 1 << 20, 1 << 33] {
        sparse.write_all_at(&random.noise(5000), position.saturating_add(random.below(10_000)))?;
    }
    create("only-hole")?.set_len((1 << 40) + 123)?;
    let inline_then_hole = create("inline-then-hole")?;
    inline_then_hole.write_all_at(&random.noise(300), 0)?;
    inline_then_hole.sync_all()?;
    inline_then_hole.set_len(10_000)?;
    let was_long = create("was-long")?;
    was_long.write_all_at(&random.noise(50_000), 0)?;
    was_long.sync_all()?;
    was_long.set_len(200)?;
    let cut = create("cut")?;
    cut.write_all_at(&random.noise(500_000), 0)?;
    cut.sync_all()?;
    cut.set_len(123_457)?;
    preallocated(folder, random)?;
    moved(folder, random)
}

/// Preallocated blocks, partly written or punched.
fn preallocated(folder: &Path, random: &mut Random) -> Result<()> {
    let create = |name: &str| open(&folder.join(name));
    let prealloc = create("prealloc")?;
    rustix::fs::fallocate(&prealloc, FallocateFlags::empty(), 0, 4 << 20)?;
    prealloc.write_all_at(&random.noise(300_000), 1 << 20)?;
    prealloc.write_all_at(&random.noise(10), (3 << 20) + 5)?;
    let beyond = create("prealloc-beyond-end")?;
    beyond.write_all_at(&random.noise(5000), 0)?;
    rustix::fs::fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 1 << 20)?;
    let punched = create("punched")?;
    punched.write_all_at(&random.noise(1 << 20), 0)?;
    punched.sync_all()?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&punched, punch, 65_536, 200_000)?;
    Ok(rustix::fs::fallocate(&punched, FallocateFlags::ZERO_RANGE, 500_001, 100_000)?)
}

/// Collapsed and inserted ranges, and blocks that were overwritten again and again.
fn moved(folder: &Path, random: &mut Random) -> Result<()> {
    let create = |name: &str| open(&folder.join(name));
    let collapsed = create("collapsed")?;
    collapsed.write_all_at(&random.noise(400_000), 0)?;
    collapsed.sync_all()?;
    rustix::fs::fallocate(&collapsed, FallocateFlags::COLLAPSE_RANGE, 8 * BLOCK, 20 * BLOCK)?;
    let inserted = create("inserted")?;
    inserted.write_all_at(&random.noise(400_000), 0)?;
    inserted.sync_all()?;
    rustix::fs::fallocate(&inserted, FallocateFlags::INSERT_RANGE, 8 * BLOCK, 20 * BLOCK)?;
    let overwritten = create("overwritten")?;
    overwritten.write_all_at(&random.noise(1 << 20), 0)?;
    for _ in 0..20 {
        overwritten.write_all_at(&random.noise(9000), random.below(1 << 20))?;
        overwritten.sync_data()?;
    }
    let backwards = create("backwards")?;
    for block in (0..200).rev() {
        backwards.write_all_at(&random.noise(4096), block * BLOCK)?;
    }
    Ok(())
}

/// Blocks on both sides of every border: an inode has up to 923 addresses, a node 1,018.
fn deep(folder: &Path, random: &mut Random) -> Result<()> {
    const NODE: u64 = 1018;
    const INODE: u64 = 923;
    std::fs::create_dir(folder)?;
    let direct = INODE + 2 * NODE;
    let indirect = direct + 2 * NODE * NODE;
    let places = [
        ("first-direct", INODE),
        ("second-direct", INODE + NODE),
        ("first-indirect", direct),
        ("inside-indirect", direct + 5 * NODE),
        ("second-indirect", direct + NODE * NODE),
        ("double-indirect", indirect),
        ("inside-double", indirect + 3 * NODE * NODE + 7 * NODE),
        ("far", indirect + NODE * NODE * NODE / 2),
        // The last block: the size limit of a file is that of inodes without any address.
        ("farthest", indirect - INODE + NODE * NODE * NODE - 1),
    ];
    let all = open(&folder.join("all"))?;
    for (name, block) in places {
        let file = open(&folder.join(name))?;
        // Inodes with inline attributes (50 addresses) and extra ones (9) have their borders earlier.
        for less in [0, 9, 50, 59] {
            let border = block.saturating_sub(less);
            for block in [border - 1, border] {
                let byte = block * BLOCK + random.below(4000);
                let text = format!("block {block} of {name}");
                file.write_all_at(text.as_bytes(), byte).with_context(|| text.clone())?;
                all.write_all_at(text.as_bytes(), byte)?;
            }
        }
    }
    let cut = open(&folder.join("cut"))?;
    for block in [0, INODE, direct, indirect] {
        cut.write_all_at(b"x", block * BLOCK)?;
    }
    cut.sync_all()?;
    Ok(cut.set_len(direct * BLOCK + 1)?)
}

/// Files are made, half of them deleted, others made in between, and some grow.
fn aged(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let path = |number: u64| folder.join(format!("file-{number}"));
    for number in 0..350 {
        let len = random.index(120_000);
        std::fs::write(path(number), random.content(len))?;
    }
    checkpoint(folder)?;
    for number in 0..350 {
        if random.one_in(2) {
            std::fs::remove_file(path(number))?;
        }
    }
    checkpoint(folder)?;
    for round in 0..3 {
        for number in 0..50 {
            let file = open(&path(random.below(400)))?;
            let len = file.metadata()?.len();
            let at = if random.one_in(2) { len } else { random.below(len.max(1)) };
            let written = random.index(40_000);
            file.write_all_at(&random.noise(written), at)?;
            if number % 10 == round {
                file.set_len(random.below(len.max(1)))?;
            }
        }
        checkpoint(folder)?;
    }
    Ok(())
}

/// Has the garbage collector move the blocks of half-empty segments.
fn collected(folder: &Path, random: &mut Random) -> Result<()> {
    const ROUNDS: usize = 60;
    std::fs::create_dir(folder)?;
    for number in 0..100 {
        std::fs::write(folder.join(format!("{number}")), random.noise(20_000))?;
    }
    checkpoint(folder)?;
    for number in (0..100).step_by(2) {
        std::fs::remove_file(folder.join(format!("{number}")))?;
    }
    checkpoint(folder)?;
    let moved = || -> Result<u64> { Ok(std::fs::read_to_string(knob("moved_blocks_background")?)?.trim().parse()?) };
    let before = moved()?;
    std::fs::write(knob("gc_urgent_sleep_time")?, "20")?;
    std::fs::write(knob("gc_urgent")?, "1")?;
    for _ in 0..ROUNDS {
        std::thread::sleep(Duration::from_millis(250));
        if moved()? > before.saturating_add(1000) {
            break;
        }
    }
    std::fs::write(knob("gc_urgent")?, "0")?;
    let count = moved()?.saturating_sub(before);
    println!("collected: {count} blocks were moved");
    ensure!(count > 0, "the garbage collector moved nothing");
    Ok(())
}

/// Fills half of the free space.
fn half_full(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let free = || -> Result<u64> { Ok(rustix::fs::statvfs(folder)?.f_bavail) };
    let half = free()? / 2;
    let mut number = 0u32;
    while free()? > half {
        let len = random.index(60_000);
        std::fs::write(folder.join(format!("{number}")), random.noise(len))?;
        number = number.saturating_add(1);
    }
    Ok(())
}

/// Clusters that compress, that do not, that were overwritten, truncated, continued and released. Holes cannot be
/// punched.
fn compressed(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    let create = |name: &str| open(&folder.join(name));
    for number in 0..8 {
        let len = random.index(600_000);
        create(&format!("text-{number}.txt"))?.write_all_at(&random.text(len), 0)?;
    }
    create("zeros.txt")?.write_all_at(&vec![0; 1 << 20], 0)?;
    create("noise.txt")?.write_all_at(&random.noise(300_000), 0)?;
    create("raw.raw")?.write_all_at(&random.text(100_000), 0)?;
    create("small.txt")?.write_all_at(&random.text(1500), 0)?;
    // Only whole clusters are compressed, and the largest have a mebibyte.
    create("long.txt")?.write_all_at(&random.text(2_600_000), 0)?;
    let mixed = create("mixed.txt")?;
    for part in 0..12u64 {
        let bytes = if part % 3 == 1 { random.noise(50_000) } else { random.text(50_000) };
        mixed.write_all_at(&bytes, part * 50_000)?;
    }
    for name in ["overwritten.txt", "cut.txt", "appended.txt", "sparse.txt"] {
        create(name)?.write_all_at(&random.text(500_000), 0)?;
    }
    checkpoint(folder)?;
    let overwritten = create("overwritten.txt")?;
    for _ in 0..8 {
        overwritten.write_all_at(&random.noise(3000), random.below(480_000))?;
    }
    create("cut.txt")?.set_len(200_001)?;
    create("appended.txt")?.write_all_at(&random.text(77_777), 500_000)?;
    create("sparse.txt")?.write_all_at(&random.text(70_000), 5_000_000)?;
    checkpoint(folder)?;
    by_flag(folder, random)?;
    let released = folder.join("text-0.txt");
    f2fs_io(&["release_cblocks"], &released).context("release")
}

/// Files that are compressed by a flag of their directory, or of their own.
fn by_flag(folder: &Path, random: &mut Random) -> Result<()> {
    let inner = folder.join("folder");
    std::fs::create_dir(&inner)?;
    rustix::fs::ioctl_setflags(File::open(&inner)?, IFlags::COMPRESSED).context("folder +c")?;
    std::fs::write(inner.join("heir"), random.text(200_000))?;
    let own = open(&folder.join("own"))?;
    rustix::fs::ioctl_setflags(&own, IFlags::COMPRESSED).context("file +c")?;
    Ok(own.write_all_at(&random.text(200_000), 0)?)
}

/// Files protected by fs-verity: a hash tree lies behind their end.
fn verity(folder: &Path, random: &mut Random) -> Result<()> {
    std::fs::create_dir(folder)?;
    for len in [0, 1, 4096, 700_000] {
        let path = folder.join(format!("len-{len}"));
        std::fs::write(&path, random.content(len))?;
        run("fsverity", &[Path::new("enable"), &path]).context("verity")?;
    }
    Ok(())
}
