//! Opens the places of objects that backups go to, by their names: [`open_store`]. The commands `backup` and `restore`
//! call it.

use std::path::{Path, PathBuf};

use btrfs_backup::{Error, FileStore, Store};

/// Begins the name of a directory of objects on the host.
const FILE: &str = "file://";

/// True for a name as `s3://BUCKET/PREFIX`, `https://HOST/PATH`, `http://HOST/PATH` and `file://DIR`.
#[must_use]
pub fn names_store(place: &str) -> bool {
    place.starts_with(FILE) || ["s3://", "https://", "http://"].iter().any(|scheme| place.starts_with(scheme))
}

/// Opens the place that a name means.
///
/// # Errors
/// [`Error::Host`] for a directory that is not there; [`Error::Store`] for a malformed name, for credentials that
/// cannot be used, and without the feature `web`.
pub fn open_store(place: &str) -> Result<Box<dyn Store>, Error> {
    if let Some(dir) = place.strip_prefix(FILE) {
        let dir = Path::new(dir);
        let store = FileStore::open(dir).map_err(|error| Error::Host { path: dir.to_owned(), error })?;
        return Ok(Box::new(store));
    }
    elsewhere(place).map_err(|error| Error::Store { object: PathBuf::from(place), error })
}

#[cfg(not(all(feature = "web", unix)))]
fn elsewhere(_place: &str) -> Result<Box<dyn Store>, btrfs_backup::SideError> {
    Err("this program was built without the feature `web`, which needs Unix".into())
}

#[cfg(all(feature = "web", unix))]
fn elsewhere(place: &str) -> Result<Box<dyn Store>, btrfs_backup::SideError> {
    let locator = blockdev::Locator::parse(place)?;
    Ok(Box::new(remote::Remote(::web::client::Objects::open(&locator)?)))
}

/// Objects in S3 and on web servers.
#[cfg(all(feature = "web", unix))]
mod remote {
    use btrfs_backup::{Condition, Object, Put, Store, StoreResult};
    use web::client;

    pub(super) struct Remote(pub(super) client::Objects);

    impl Store for Remote {
        fn name(&self) -> String {
            self.0.name().to_owned()
        }

        fn get(&self, key: &str, bytes_max: u64) -> StoreResult<Option<Object>> {
            Ok(self.0.get(key, bytes_max)?.map(|(bytes, tag)| Object { bytes, tag }))
        }

        fn size(&self, key: &str) -> StoreResult<Option<u64>> {
            Ok(self.0.size(key)?)
        }

        fn put(&self, key: &str, bytes: &[u8], condition: Condition<'_>) -> StoreResult<Put> {
            let condition = match condition {
                Condition::Absent => client::Condition::Absent,
                Condition::Matches(tag) => client::Condition::Matches(tag),
            };
            Ok(match self.0.put(key, bytes, condition)? {
                client::Put::Done(tag) => Put::Done(tag),
                client::Put::Refused => Put::Refused,
            })
        }

        fn delete(&self, key: &str) -> StoreResult<()> {
            Ok(self.0.delete(key)?)
        }
    }
}
