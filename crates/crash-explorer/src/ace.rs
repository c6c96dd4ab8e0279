//! Generates the workloads of CrashMonkey's ACE (Mohan et al., OSDI 2018): all short sequences of operations that had
//! exposed bugs, over a few files and directories, with a sync after each. Called by `plan`; `random_workloads` draws
//! from the same operations.
//!
//! [`variants`] are the operations with their arguments. Their prerequisites are made first ([`super::sketch`]). After
//! each comes one of [`syncs`]: of the changed file, of its directory, of another name of the set, of everything;
//! before the last operation also none. Three populations are committed before: nothing, a few files, all names.
//!
//! Differences to ACE: there is no mount, so that `mmapwrite` is a write over existing bytes, and `dwrite` one that is
//! written back at once. Sequences of one operation have all syncs and populations; of two, all pairs of variants
//! exist, each with a drawn choice of syncs and population; of three, a drawn sample.

use super::Form;
use super::sketch::{FILLED_BYTES, Sketch, XATTR, parent};
use super::step::{Reserve, Step, WriteHow};
use super::workload::Workload;
use crate::Random;
use crate::number::to_u64;

const KIB: u64 = 1 << 10;

/// Lines in the language of workloads: `@` is where a file ends that was filled before.
const NAME_VARIANTS: &str = "
    creat foo; creat A/foo; creat A/bar; creat B/foo; creat A/C/foo
    mkdir A; mkdir B; mkdir A/C
    link foo bar; link foo A/bar; link A/foo A/bar; link A/foo B/foo; link A/foo bar
    symlink foo bar; symlink foo A/bar; symlink A/foo B/bar
    unlink foo; unlink A/foo; unlink A/bar; unlink B/bar
    rmdir A; rmdir B; rmdir A/C
    rename foo bar; rename foo A/bar; rename A/foo A/bar; rename A/foo B/foo; rename A/foo B/bar
    rename A/bar foo; rename B/foo A/foo; rename A B; rename B A; rename A/C B; rename B A/C
    truncate foo 0; truncate foo 2500; truncate foo 40000; truncate A/foo 4096; truncate A/foo 10000
    setxattr foo user.xattr1 value2; setxattr A/foo user.xattr1 value2; setxattr A user.xattr1 value2
    removexattr foo user.xattr1; removexattr A/foo user.xattr1; removexattr A user.xattr1
";

/// Operations that ACE does not have.
const MORE_VARIANTS: &str = "
    chmod foo 640; chmod A/foo 4711; chmod A 1777; chown foo 1000 1001; chown A/foo 7 0; chown A 12 13
    utimes foo 1000000000 1100000000; utimes A/foo 5 0; utimes A 1200000000 7
    chattr foo =d; chattr A/foo =Ad; chattr A =A; chattr foo =S
    exchange foo bar; exchange A/foo B/bar; exchange foo A; exchange A B
    tmpfile baz 100; tmpfile A/baz 20000
    reflink foo 0 bar 0 16384; reflink A/foo 4096 bar 8192 8192; reflink foo 0 A/foo 0 16384
    copy foo 0 bar 0 16384; copy A/foo 100 foo 5000 9000; copy foo 0 A/bar 4096 12288
    hold foo; subvol S1; snapshot S1 N1; creat S1/foo; rename S1/foo S1/bar; write S1/foo 0 5000; delsubvol S1
";

/// Those, with their arguments.
pub(super) fn more_variants() -> Vec<Step> {
    let parsed = super::language::parse(MORE_VARIANTS.replace(';', "\n").as_bytes()).unwrap_or_default();
    parsed.into_iter().map(|(_, step)| step).collect()
}

/// How many committed files a workload begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Population {
    Nothing,
    Some,
    All,
}

pub(super) const POPULATIONS: [Population; 3] = [Population::Nothing, Population::Some, Population::All];

impl Population {
    pub(super) fn steps(self) -> Vec<Step> {
        let (folders, files): (&[&str], &[&str]) = match self {
            Self::Nothing => (&[], &[]),
            Self::Some => (&["A", "B"], &["foo", "A/foo"]),
            Self::All => (&["A", "B", "A/C"], &["foo", "bar", "A/foo", "A/bar", "B/foo", "B/bar"]),
        };
        let mut steps: Vec<Step> = folders.iter().map(|path| Step::CreateDir { path: (*path).to_owned() }).collect();
        for path in files {
            steps.push(Step::Create { path: (*path).to_owned() });
            steps.push(write(WriteHow::Buffered, path, 0, FILLED_BYTES));
            steps.push(Step::SetXattr { path: (*path).to_owned(), name: XATTR.to_owned(), value: "value1".to_owned() });
        }
        steps
    }

    pub(super) fn sketch(self) -> Sketch {
        let mut sketch = Sketch::default();
        self.steps().iter().for_each(|step| sketch.take(step));
        sketch
    }
}

fn write(how: WriteHow, path: &str, offset: u64, len: u64) -> Step {
    Step::Write { how, path: path.to_owned(), offset, len }
}

/// All operations with their arguments.
pub(super) fn variants() -> Vec<Step> {
    let lines = NAME_VARIANTS.replace(';', "\n");
    let parsed = super::language::parse(lines.as_bytes()).unwrap_or_default();
    let mut all: Vec<Step> = parsed.into_iter().map(|(_, step)| step).collect();
    let allocate = |reserve, path: &str, offset, len| Step::Allocate { reserve, path: path.to_owned(), offset, len };
    all.extend([
        allocate(Reserve::Grow, "foo", 0, 32 * KIB),
        allocate(Reserve::Grow, "A/foo", 14 * KIB, 20 * KIB),
        allocate(Reserve::KeepSize, "A/foo", 16 * KIB, 32 * KIB),
        allocate(Reserve::Punch, "A/foo", 4 * KIB, 6 * KIB),
        allocate(Reserve::Punch, "foo", 0, 16 * KIB),
        allocate(Reserve::Zero, "A/foo", 3 * KIB, 6 * KIB),
        allocate(Reserve::Zero, "foo", 12 * KIB, 12 * KIB),
    ]);
    // Behind the end, over the start, across the end, within; whole sectors and not; and one that is kept in a leaf.
    let buffered = WriteHow::Buffered;
    for path in ["foo", "A/foo"] {
        all.extend([
            write(buffered, path, FILLED_BYTES, 4 * KIB),
            write(buffered, path, 0, 5000),
            write(buffered, path, FILLED_BYTES - 3000, 6000),
            write(buffered, path, 3000, 7000),
        ]);
    }
    all.extend([
        write(buffered, "bar", 0, 1000),
        write(WriteHow::Direct, "foo", FILLED_BYTES, 8 * KIB),
        write(WriteHow::Direct, "foo", 4 * KIB, 8 * KIB),
        write(WriteHow::Direct, "A/foo", 0, 4 * KIB),
        write(WriteHow::Direct, "A/foo", 12 * KIB, 8 * KIB),
        write(WriteHow::Mapped, "foo", 1000, 2000),
        write(WriteHow::Mapped, "A/foo", 4 * KIB, 8 * KIB),
        write(WriteHow::Mapped, "A/foo", 6000, 9000),
    ]);
    all
}

/// The syncs that can come behind an operation.
pub(super) fn syncs(step: &Step, sketch: &Sketch) -> Vec<Step> {
    let mut paths: Vec<String> = Vec::new();
    for path in step.paths() {
        paths.extend([path.to_owned(), parent(path).to_owned()]);
    }
    paths.extend(["foo", "A/foo", "A"].map(str::to_owned));
    let mut all = vec![Step::Sync];
    let mut seen = std::collections::BTreeSet::new();
    for path in paths {
        if !sketch.can_be_synced(&path) || !seen.insert(path.clone()) {
            continue;
        }
        if sketch.is_file(&path) {
            all.push(Step::Fdatasync { path: path.clone() });
        }
        all.push(Step::Fsync { path });
    }
    all
}

/// Forms of images by turns: most are small and have one copy of each block, so that nothing hides a lost write.
pub(super) fn form_of(index: u64) -> Form {
    match index % 8 {
        7 => Form::Usual,
        3 => Form::NoInline,
        5 => Form::Compressed,
        _ => Form::Small,
    }
}

/// All sequences of one operation.
pub(super) fn ones() -> Vec<Workload> {
    let mut workloads = ones_of("ace1", &variants());
    workloads.extend(ones_of("more1", &more_variants()));
    workloads
}

fn ones_of(kind: &str, variants: &[Step]) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for population in POPULATIONS {
        for (number, variant) in variants.iter().enumerate() {
            let mut sketch = population.sketch();
            let steps = sketch.complete(variant);
            if steps.is_empty() {
                continue;
            }
            for (sync_number, sync) in syncs(variant, &sketch).into_iter().enumerate() {
                let index = to_u64(workloads.len());
                workloads.push(Workload {
                    name: format!("{kind}-{population:?}-{number}-{sync_number}").to_lowercase(),
                    form: form_of(index),
                    setup: population.steps(),
                    threads: vec![steps.iter().cloned().chain([sync]).collect()],
                });
            }
        }
    }
    workloads
}

/// All pairs of operations; syncs and population are drawn.
pub(super) fn twos(seed: u64) -> Vec<Workload> {
    let variants = variants();
    let mut workloads = Vec::new();
    for (first_number, first) in variants.iter().enumerate() {
        for (second_number, second) in variants.iter().enumerate() {
            let name = format!("ace2-{first_number}-{second_number}");
            let number = first_number * variants.len() + second_number;
            workloads.extend(sequence(&[first, second], name, to_u64(number), seed));
        }
    }
    workloads
}

/// So many sequences of three operations.
pub(super) fn threes(seed: u64, count: u64) -> Vec<Workload> {
    let variants = variants();
    let mut workloads = Vec::new();
    for number in 0..count {
        let mut random = Random::new(seed ^ 0x33 ^ number.wrapping_mul(0x9e37_79b9));
        let drawn: Vec<&Step> = (0..3).filter_map(|_| random.pick(&variants)).collect();
        workloads.extend(sequence(&drawn, format!("ace3-{number}"), number ^ 0x3000_0000, seed));
    }
    workloads
}

/// A sequence with drawn syncs; none, where the operations cannot follow each other.
fn sequence(drawn: &[&Step], name: String, number: u64, seed: u64) -> Option<Workload> {
    let mut random = Random::new(seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
    let population = random.pick(&POPULATIONS).copied()?;
    let mut sketch = population.sketch();
    let mut steps = Vec::new();
    for (index, step) in drawn.iter().enumerate() {
        let own = sketch.complete(step);
        if own.is_empty() {
            return None;
        }
        steps.extend(own);
        let is_last = index + 1 == drawn.len();
        if is_last || !random.one_in(4) {
            let syncs = syncs(step, &sketch);
            // A sync of everything leaves no log: it comes less often.
            let sync = match random.index(syncs.len() * 2) {
                0 => Some(Step::Sync),
                _ => random.pick(syncs.get(1..).unwrap_or_default()).cloned(),
            };
            steps.push(sync.unwrap_or(Step::Sync));
        }
    }
    Some(Workload { name, form: form_of(random.number()), setup: population.steps(), threads: vec![steps] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_operation_of_ace_has_variants() {
        let names: BTreeSet<String> =
            variants().iter().filter_map(|step| step.to_string().split(' ').next().map(str::to_owned)).collect();
        let expected = [
            "creat",
            "dwrite",
            "falloc",
            "link",
            "mkdir",
            "mmapwrite",
            "removexattr",
            "rename",
            "rmdir",
            "setxattr",
            "symlink",
            "truncate",
            "unlink",
            "write",
        ];
        assert_eq!(names, expected.map(str::to_owned).into());
        assert!(variants().len() > 60);
    }

    #[test]
    fn every_other_operation_has_variants() {
        let all = more_variants();
        let names: BTreeSet<String> =
            all.iter().filter_map(|step| step.to_string().split(' ').next().map(str::to_owned)).collect();
        let expected = [
            "chattr",
            "chmod",
            "chown",
            "copy",
            "creat",
            "delsubvol",
            "exchange",
            "hold",
            "reflink",
            "rename",
            "snapshot",
            "subvol",
            "tmpfile",
            "utimes",
            "write",
        ];
        assert_eq!(names, expected.map(str::to_owned).into());
    }

    #[test]
    fn sequences_end_with_a_sync() {
        let workloads = ones().into_iter().chain(twos(1)).chain(threes(1, 100));
        let mut names = BTreeSet::new();
        for workload in workloads {
            assert!(workload.threads[0].last().unwrap().is_sync(), "{workload:?}");
            assert!(names.insert(workload.name.clone()), "{} twice", workload.name);
        }
        assert!(names.len() > 3000, "{}", names.len());
    }
}
