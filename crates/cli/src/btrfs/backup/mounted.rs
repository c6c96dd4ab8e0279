//! Implements the side of a backup or restore that the server of a mount has open: it asks the server to do each step
//! ([`super::served`]). `backup` and `restore` use it when the image is mounted.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::de::DeserializeOwned;
use spinney::btrfs::backup::{Error, Found, Result, SEND_OPTIONS, Source, Target, hex};
use spinney::checking::{Watch, Watched};

use super::{JOB, boxed};
use crate::commands::image::ImageArgs;
use crate::commands::on_mount::OnMount;

/// A directory of a mount.
pub(super) struct Mounted {
    mount: OnMount,
    files: spinney::Files,
}

impl Mounted {
    pub(super) fn open(dir: &Path, image: &ImageArgs) -> anyhow::Result<Self> {
        Ok(Self { mount: OnMount::connect(dir)?, files: image.open_writable()? })
    }

    fn word(&self, path: &Path) -> Result<String> {
        self.mount.word(path).map_err(side)
    }

    /// Has the server do the step `what` of a backup.
    fn ask(&self, what: &str, words: Vec<String>, output: impl Write) -> Result<()> {
        let words = [JOB.to_owned(), what.to_owned()].into_iter().chain(words).collect();
        self.mount.take(words, output).map(drop).map_err(side)
    }

    /// As [`Self::ask`], for a step that has an answer.
    fn answer<T: DeserializeOwned>(&self, what: &str, words: Vec<String>) -> Result<T> {
        let mut found = Vec::new();
        self.ask(what, words, &mut found)?;
        serde_json::from_slice(&found).with_context(|| format!("the server's answer to {what}")).map_err(side)
    }
}

/// The library hands the error back as it is.
#[expect(clippy::needless_pass_by_value, reason = "the argument of map_err")]
fn side(error: anyhow::Error) -> Error {
    Error::Side(boxed(&error))
}

impl Source for Mounted {
    fn lineage(&self, path: &Path) -> Result<Vec<[u8; 16]>> {
        self.answer("lineage", vec![self.word(path)?])
    }

    fn subvolumes_in(&self, dir: &Path) -> Result<Vec<Found>> {
        self.answer("list", vec![self.word(dir)?])
    }

    fn freeze(&self, path: &Path, snapshot: &Path) -> Result<()> {
        self.ask("freeze", vec![self.word(path)?, self.word(snapshot)?], std::io::sink())
    }

    fn delete(&self, path: &Path) -> Result<()> {
        self.ask("delete", vec![self.word(path)?], std::io::sink())
    }

    fn send(&self, path: &Path, parent: Option<&Path>, output: &mut dyn Write) -> Result<()> {
        let proto = format!("--proto={}", SEND_OPTIONS.version);
        let mut words = vec!["send".to_owned(), proto, "--compressed-data".to_owned()];
        if let Some(parent) = parent {
            words.push(format!("--parent={}", self.word(parent)?));
        }
        words.extend(["--".to_owned(), "IMAGE".to_owned(), self.word(path)?]);
        self.mount.take(words, output).map(drop).map_err(side)
    }

    fn files(&self) -> &spinney::Files {
        &self.files
    }
}

impl Target for Mounted {
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.exists(path)?)
    }

    fn begin(&self, work: &Path) -> Result<()> {
        self.ask("begin", vec![self.word(work)?], std::io::sink())
    }

    fn receive(&self, input: &mut (dyn Read + Send), work: &Path, watch: &dyn Watch) -> Result<PathBuf> {
        let words = ["receive", "--", "IMAGE"].map(str::to_owned).into_iter().chain([self.word(work)?]);
        let report = self.mount.give(words.collect(), Watched::new(input, watch)).map_err(side)?;
        let report: serde_json::Value = serde_json::from_str(&report).context("the server's report").map_err(side)?;
        let made = report["subvolumes"].as_array().and_then(|made| made.last()?["path"].as_str());
        made.map(PathBuf::from).ok_or(Error::NothingReceived)
    }

    fn finish(&self, received: &Path, path: &Path, work: &Path, kept: Option<&Path>) -> Result<()> {
        // The server names received subvolumes by paths from its own root already.
        let received = received.to_str().ok_or(Error::NothingReceived)?.to_owned();
        let mut words = vec![received, self.word(path)?, self.word(work)?];
        words.extend(kept.map(|kept| self.word(kept)).transpose()?);
        self.ask("finish", words, std::io::sink())
    }

    fn has(&self, uuid: [u8; 16]) -> Result<bool> {
        self.answer("has", vec![hex(&uuid)])
    }

    fn revive(&self, uuid: [u8; 16], path: &Path) -> Result<()> {
        self.ask("revive", vec![hex(&uuid), self.word(path)?], std::io::sink())
    }
}
