//! Random histories of a base and two forks, merged in turn, compared with the model. `FORK_CASES` sets how many,
//! `FORK_SEED` the first one.

use std::path::{Path, PathBuf};

use forks::{ForkOptions, Merge, Strategy};
use vfs::file_system::XattrMode;

use crate::model::{self, Conflicts, Kind, Map, Node, is_empty, move_all};
use crate::sample::Sample;

const CASES_DEFAULT: u64 = 300;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const MODES: [u32; 4] = [0o644, 0o755, 0o600, 0o4755];
const TAG: &str = "user.tag";

/// Numbers by xorshift.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % u64::try_from(end).unwrap()).unwrap()
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}

/// A subvolume, and what it should contain.
#[derive(Clone)]
struct Side {
    path: PathBuf,
    map: Map,
    ancestor: Map,
}

struct Case<'s> {
    sample: &'s Sample,
    random: Random,
}

impl Case<'_> {
    fn at(&self, side: &Side, path: &Path) -> PathBuf {
        side.path.join(path)
    }

    /// A new path whose directory exists.
    fn new_path(&mut self, map: &Map) -> PathBuf {
        let mut dirs: Vec<PathBuf> =
            map.iter().filter(|(_, node)| node.is_dir()).map(|(path, _)| path.clone()).collect();
        dirs.retain(|dir| dir.components().count() < 3);
        dirs.push(PathBuf::new());
        self.random.pick(&dirs).join(self.random_name())
    }

    fn random_name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len())]
    }

    fn contents(&mut self) -> Vec<u8> {
        match self.random.below(6) {
            0 => vec![0, u8::try_from(self.random.below(3)).unwrap(), 2],
            // More than is kept in a leaf.
            1 => vec![b'x'; 5000 + self.random.below(3)],
            _ => (0..self.random.below(8)).flat_map(|line| format!("line {line}\n").into_bytes()).collect(),
        }
    }

    /// Changes, removes or adds a line.
    fn edited(&mut self, text: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = text.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let at = self.random.below(lines.len() + 1);
        match self.random.below(3) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines[at] = format!("changed {}\n", self.random.below(3)).into_bytes(),
            _ => lines.insert(at, format!("new {}\n", self.random.below(3)).into_bytes()),
        }
        lines.concat()
    }

    fn step(&mut self, side: &mut Side) {
        let volume = &self.sample.volume;
        let paths: Vec<PathBuf> = side.map.keys().cloned().collect();
        if paths.is_empty() || self.random.below(3) == 0 {
            let path = self.new_path(&side.map);
            if !side.map.contains_key(&path) {
                self.create(side, &path);
            }
            return;
        }
        let path = self.random.pick(&paths).clone();
        let at = self.at(side, &path);
        let mut node = side.map[&path].clone();
        match self.random.below(6) {
            0 if node.is_dir() && is_empty(&side.map, &path) => {
                volume.remove_dir(&at).unwrap();
                side.map.remove(&path);
            }
            0 if node.is_dir() => {
                volume.remove_dir_all(&at).unwrap();
                side.map.retain(|other, _| !other.starts_with(&path));
            }
            0 => {
                volume.remove_file(&at).unwrap();
                side.map.remove(&path);
            }
            1 => {
                let to = self.new_path(&side.map);
                if !side.map.contains_key(&to) && !to.starts_with(&path) {
                    volume.rename(&at, self.at(side, &to)).unwrap();
                    move_all(&mut side.map, &path, &to);
                }
            }
            2 if !matches!(node.kind, Kind::Link(_)) => {
                node.mode = *self.random.pick(&MODES);
                volume.set_permissions(&at, node.mode).unwrap();
                side.map.insert(path, node);
            }
            3 if !matches!(node.kind, Kind::Link(_)) => {
                let tag = u8::try_from(self.random.below(3)).unwrap();
                volume.set_xattr(&at, TAG, [tag], XattrMode::Either).unwrap();
                node.tag = Some(tag);
                side.map.insert(path, node);
            }
            _ => self.edit(side, &path, node),
        }
    }

    fn create(&mut self, side: &mut Side, path: &Path) {
        let (volume, at) = (&self.sample.volume, self.at(side, path));
        let (kind, mode) = match self.random.below(5) {
            0 | 1 => (Kind::Dir, 0o755),
            2 => (Kind::Link(self.random_name().to_owned()), 0o777),
            _ => (Kind::File(self.contents()), 0o644),
        };
        match &kind {
            Kind::Dir => volume.create_dir(&at).unwrap(),
            Kind::Link(target) => volume.symlink(target, &at).unwrap(),
            Kind::File(data) => volume.write(&at, data).unwrap(),
        }
        if mode != 0o777 {
            volume.set_permissions(&at, mode).unwrap();
        }
        side.map.insert(path.to_owned(), Node { kind, mode, tag: None });
    }

    /// Writes to a file, in place or as editors do: another one under its name.
    fn edit(&mut self, side: &mut Side, path: &Path, mut node: Node) {
        let Kind::File(data) = &node.kind else { return };
        let data = if self.random.below(4) == 0 { self.contents() } else { self.edited(data) };
        let (volume, at) = (&self.sample.volume, self.at(side, path));
        if self.random.below(2) == 0 {
            volume.write(&at, &data).unwrap();
            // Writing by a privileged caller keeps the mode, but that is not what is tested.
            volume.set_permissions(&at, node.mode).unwrap();
        } else {
            let temporary = side.path.join("temporary");
            volume.write(&temporary, &data).unwrap();
            volume.set_permissions(&temporary, node.mode).unwrap();
            volume.rename(&temporary, &at).unwrap();
            node.tag = None;
        }
        node.kind = Kind::File(data);
        side.map.insert(path.to_owned(), node);
    }

    fn steps(&mut self, side: &mut Side) {
        for _ in 0..self.random.below(8) {
            self.step(side);
        }
    }

    fn fork(&mut self, base: &Side, name: &str) -> Side {
        let path = base.path.with_file_name(name);
        self.sample.forks.fork(&base.path, &path, &ForkOptions::default()).unwrap();
        Side { path, map: base.map.clone(), ancestor: base.map.clone() }
    }

    /// Merges, and compares with the model.
    fn merge(&mut self, fork: &mut Side, target: &mut Side, is_base: bool) {
        let strategy = *self.random.pick(&[Strategy::Fail, Strategy::Ours, Strategy::Theirs]);
        let into = (!is_base || self.random.below(2) == 0).then(|| target.path.clone());
        let merged = self.sample.forks.merge(&fork.path, &Merge { into, strategy }).unwrap();
        let (wanted, conflicts) = model::merge(&fork.ancestor, &fork.map, &target.map, strategy);
        let found: Conflicts = merged.conflicts.iter().map(|one| (one.path.clone(), one.kind)).collect();
        assert_eq!(found, conflicts, "{strategy:?}");
        let result = self.map(&target.path);
        let differing = wanted.keys().chain(result.keys()).find(|path| wanted.get(*path) != result.get(*path));
        if let Some(path) = differing {
            panic!("{strategy:?}: {path:?}: expected {:?}, found {:?}", wanted.get(path), result.get(path));
        }
        assert_eq!(self.map(&fork.path), fork.map);
        target.map = wanted;
        let is_done = strategy != Strategy::Fail || found.is_empty();
        if is_base && is_done {
            fork.ancestor = fork.map.clone();
        }
    }

    /// The nodes of a subvolume.
    fn map(&self, root: &Path) -> Map {
        let volume = &self.sample.volume;
        let (mut map, mut todo) = (Map::new(), vec![PathBuf::new()]);
        while let Some(dir) = todo.pop() {
            for entry in volume.read_dir(root.join(&dir)).unwrap() {
                let path = dir.join(entry.unwrap().file_name());
                let at = root.join(&path);
                let attr = volume.symlink_metadata(&at).unwrap();
                let kind = if attr.is_dir() {
                    todo.push(path.clone());
                    Kind::Dir
                } else if attr.is_symlink() {
                    Kind::Link(volume.read_link(&at).unwrap().to_str().unwrap().to_owned())
                } else {
                    Kind::File(volume.read(&at).unwrap())
                };
                let tag = volume.get_xattr(&at, TAG).unwrap().map(|tag| tag[0]);
                map.insert(path, Node { kind, mode: attr.permissions, tag });
            }
        }
        map
    }

    fn run(&mut self, number: u64) {
        let path = PathBuf::from(format!("base-{number}"));
        self.sample.volume.create_subvolume(&path).unwrap();
        let mut base = Side { path, map: Map::new(), ancestor: Map::new() };
        self.steps(&mut base);
        self.steps(&mut base);
        let mut first = self.fork(&base, "first");
        self.steps(&mut base);
        let mut second = self.fork(&base, "second");
        for side in [&mut base, &mut first, &mut second] {
            self.steps(side);
        }
        self.merge(&mut first, &mut base, true);
        self.steps(&mut second);
        match self.random.below(3) {
            0 => self.merge(&mut first, &mut second, false),
            1 => {
                self.steps(&mut first);
                self.merge(&mut first, &mut base, true);
            }
            _ => {}
        }
        self.merge(&mut second, &mut base, true);
        for fork in [&first, &second] {
            self.sample.forks.drop_fork(&fork.path).unwrap();
        }
        assert_eq!(self.map(&base.path), base.map);
        self.sample.volume.delete_subvolume(&base.path).unwrap();
    }
}

#[test]
fn merges_agree_with_the_model() {
    let number = |name: &str, default| std::env::var(name).map_or(default, |value| value.parse().unwrap());
    let first = number("FORK_SEED", 1);
    let cases = number("FORK_CASES", CASES_DEFAULT);
    let sample = Sample::new();
    let mut seen = 0_usize;
    for seed in first..first + cases {
        let mut case = Case { sample: &sample, random: Random::new(seed) };
        let run = std::panic::AssertUnwindSafe(|| case.run(seed));
        if std::panic::catch_unwind(run).is_err() {
            panic!("FORK_SEED={seed} FORK_CASES=1 repeats it");
        }
        seen += 1;
    }
    assert_eq!(u64::try_from(seen).unwrap(), cases);
    assert!(sample.forks.list().unwrap().is_empty());
    assert_eq!(sample.names("/"), ["base"]);
    sample.check();
}
