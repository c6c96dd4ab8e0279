//! Volumes in memory for the other tests.

use std::path::Path;
use std::sync::Arc;

use btrfs::{MakeOptions, MemoryDevice, Volume};
use btrfs_check::Options;
use forks::{ForkOptions, Forks};

/// A volume with the subvolume `base`.
pub(crate) struct Sample {
    pub(crate) device: Arc<MemoryDevice>,
    pub(crate) volume: Volume,
    pub(crate) forks: Forks,
}

impl Sample {
    pub(crate) fn new() -> Self {
        let device = Arc::new(MemoryDevice::new(512 << 20));
        let volume = Volume::options().make_device(device.clone(), &MakeOptions::default()).unwrap();
        volume.create_subvolume("base").unwrap();
        Self { device, forks: Forks::new(volume.clone()), volume }
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        self.volume.write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        self.volume.read_to_string(path).unwrap()
    }

    pub(crate) fn fork(&self, base: &str, target: &str) {
        self.forks.fork(Path::new(base), Path::new(target), &ForkOptions::default()).unwrap();
    }

    /// The names in a directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let entries = self.volume.read_dir(path).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Syncs, and checks what is on the device.
    pub(crate) fn check(&self) {
        self.volume.sync().unwrap();
        let devices: [Arc<dyn blockdev::Device>; 1] = [self.device.clone()];
        let report = btrfs_check::check(&devices, &Options::default(), &()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}
