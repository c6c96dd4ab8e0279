//! A store in memory whose requests are counted, and which fails from a chosen one on, as if its client were killed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use btrfs_backup::{Condition, Object, Put, Store, StoreResult};

/// The fate of the request at which the client dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// It does not reach the store.
    Lost,
    /// It is carried out, and its answer is lost.
    Done,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, (Vec<u8>, u64)>,
    requests: u64,
    versions: u64,
    /// The request from which on all fail.
    end: Option<(u64, Last)>,
    ignores_conditions: bool,
    tells_no_tags: bool,
}

/// A store; its clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Bucket(Arc<Mutex<State>>);

impl Bucket {
    /// Lets all requests from the one with this number on fail; all succeed from now on without it.
    pub(crate) fn die_at(&self, end: Option<(u64, Last)>) {
        let mut state = self.0.lock().unwrap();
        state.requests = 0;
        state.end = end;
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.lock().unwrap().requests
    }

    pub(crate) fn ignore_conditions(&self) {
        self.0.lock().unwrap().ignores_conditions = true;
    }

    pub(crate) fn tell_no_tags_of_writes(&self) {
        self.0.lock().unwrap().tells_no_tags = true;
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().objects.keys().cloned().collect()
    }

    /// The first key with this text in it.
    pub(crate) fn key(&self, text: &str) -> String {
        self.keys().into_iter().find(|key| key.contains(text)).unwrap()
    }

    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        self.0.lock().unwrap().objects.get(key).unwrap().0.clone()
    }

    /// Replaces or removes an object, as somebody else does.
    pub(crate) fn set(&self, key: &str, bytes: Option<Vec<u8>>) {
        let mut state = self.0.lock().unwrap();
        state.versions += 1;
        let version = state.versions;
        match bytes {
            Some(bytes) => drop(state.objects.insert(key.to_owned(), (bytes, version))),
            None => drop(state.objects.remove(key)),
        }
    }

    /// Carries out a request, unless the client is dead.
    fn request<T>(&self, run: impl FnOnce(&mut State) -> T) -> StoreResult<T> {
        let mut state = self.0.lock().unwrap();
        let number = state.requests;
        state.requests += 1;
        match state.end {
            Some((end, Last::Done)) if number == end => {
                run(&mut state);
                Err("the client was killed".into())
            }
            Some((end, _)) if number >= end => Err("the client was killed".into()),
            _ => Ok(run(&mut state)),
        }
    }
}

fn tag(version: u64) -> String {
    format!("\"{version}\"")
}

impl Store for Bucket {
    fn name(&self) -> String {
        "mem://bucket".to_owned()
    }

    fn get(&self, key: &str, bytes_max: u64) -> StoreResult<Option<Object>> {
        let found = self.request(|state| state.objects.get(key).cloned())?;
        let Some((bytes, version)) = found else { return Ok(None) };
        if u64::try_from(bytes.len())? > bytes_max {
            return Err(format!("expected at most {bytes_max} bytes").into());
        }
        Ok(Some(Object { bytes, tag: Some(tag(version)) }))
    }

    fn size(&self, key: &str) -> StoreResult<Option<u64>> {
        let found = self.request(|state| state.objects.get(key).map(|(bytes, _)| bytes.len()))?;
        Ok(found.map(u64::try_from).transpose()?)
    }

    fn put(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> StoreResult<Put> {
        self.request(|state| {
            let found = state.objects.get(key).map(|(_, version)| tag(*version));
            let holds = match condition {
                Condition::Absent => found.is_none(),
                Condition::Matches(wanted) => found.as_deref() == Some(wanted),
            };
            if !holds && !state.ignores_conditions {
                return Put::Refused;
            }
            state.versions += 1;
            let version = state.versions;
            state.objects.insert(key.to_owned(), (bytes.to_vec(), version));
            Put::Done((!state.tells_no_tags).then(|| tag(version)))
        })
    }

    fn delete(&self, key: &str) -> StoreResult<()> {
        self.request(|state| drop(state.objects.remove(key)))
    }
}
