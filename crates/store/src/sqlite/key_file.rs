//! The file with the key that seals secrets in the rows, beside the store: `toolhub.db.key`, readable by its owner only.
//!
//! In: the path of a locked store. Out: its key, which is durable before the store takes its first write. Backups do not contain
//! it: who has only a backup cannot read the secrets of calls that were open.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use toolhub_storage::seal::SealKey;

use super::OpenError;
use crate::backup::{remove_if_exists, sync_folder, with_suffix};

/// Permissions of everyone but the owner.
const OTHERS: u32 = 0o077;

/// Reads the key of a store, or creates it.
pub(super) fn load_or_create(store: &Path) -> Result<SealKey, OpenError> {
    let path = with_suffix(store, ".key");
    let failed = |error| OpenError::Io { path: path.clone(), error };
    match read(&path) {
        Ok(bytes) => {
            if let Ok(bytes) = <&[u8; SealKey::LEN]>::try_from(bytes.as_slice()) {
                return Ok(SealKey::new(bytes));
            }
            let kept = with_suffix(&path, ".damaged");
            fs::rename(&path, &kept).map_err(failed)?;
            tracing::warn!(
                file = %path.display(), kept = %kept.display(),
                "key file is damaged; a new one is made. Open calls with secret arguments will end as interrupted"
            );
        }
        Err(KeyError::Missing) => {}
        Err(KeyError::Exposed) => return Err(OpenError::ExposedKey(path)),
        Err(KeyError::Io(error)) => return Err(failed(error)),
    }
    let bytes = SealKey::generate();
    write(&path, &bytes).map_err(failed)?;
    Ok(SealKey::new(&bytes))
}

enum KeyError {
    Missing,
    Exposed,
    Io(io::Error),
}

fn read(path: &PathBuf) -> Result<Vec<u8>, KeyError> {
    let mode = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(KeyError::Missing),
        found => found.map_err(KeyError::Io)?.permissions().mode(),
    };
    if mode & OTHERS != 0 {
        // Some systems add permissions when they mount a volume.
        tracing::warn!(file = %path.display(), mode = format!("{mode:o}"), "others may read the key file; this is changed now");
        let changed = fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o700));
        let is_exposed = || fs::metadata(path).map_or(true, |file| file.permissions().mode() & OTHERS != 0);
        if changed.is_err() || is_exposed() {
            return Err(KeyError::Exposed);
        }
    }
    fs::read(path).map_err(KeyError::Io)
}

/// Writes the key under a temporary name first: after a crash there is either no key or a complete one.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = with_suffix(path, ".new");
    remove_if_exists(&new)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    sync_folder(path.parent().unwrap_or(Path::new("/")))
}

#[cfg(test)]
mod tests {
    use toolhub_testkit::TempFolder;

    use super::*;

    #[test]
    fn a_key_is_kept_for_its_owner_alone_and_replaced_only_if_it_is_damaged() {
        let folder = TempFolder::new();
        let (store, file) = (folder.path().join("toolhub.db"), folder.path().join("toolhub.db.key"));
        let sealed = load_or_create(&store).unwrap().seal("call", "hunter2");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load_or_create(&store).unwrap().unseal("call", &sealed).as_deref(), Some("hunter2"));

        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(load_or_create(&store).unwrap().unseal("call", &sealed).as_deref(), Some("hunter2"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "it is kept from others");

        fs::write(&file, b"half a key").unwrap();
        let replaced = load_or_create(&store).unwrap();
        assert_eq!(replaced.unseal("call", &sealed), None);
        assert_eq!(fs::read(&file).unwrap().len(), SealKey::LEN);
        assert_eq!(load_or_create(&store).unwrap().unseal("call", &replaced.seal("call", "x")).as_deref(), Some("x"));
    }
}
