//! Backup manifest: a small JSON file next to each backup that names what it is a backup of, its size and its checksum.
//!
//! In: a backup, or a folder of them. Out: their manifests. A manifest contains no file name: it belongs to the backup next
//! to it.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolhub_storage::clock::Timestamp;
use toolhub_types::store_role::StoreRole;

use super::with_suffix;

/// Upper limit of a manifest's size.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;

/// A completed backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backup {
    /// The file, or the folder.
    #[serde(skip)]
    pub path: PathBuf,
    /// What it is a backup of. `None` in the manifests of earlier versions, which did not say; a restore then decides by the
    /// rows of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreRole>,
    /// The time of its snapshot.
    pub made_at: Timestamp,
    /// The schema of the store.
    pub schema: u32,
    /// The size of the file, or of all files together.
    pub bytes: u64,
    /// The number of rows, or of files.
    pub rows: u64,
    /// The SHA-256 of the file in hex; for a folder, that of its checksum list.
    pub sha256: String,
}

impl Backup {
    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// When it does not exist or cannot be parsed.
    pub fn read(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let mut text = String::new();
        let manifest = with_suffix(&path, ".json");
        if !fs::metadata(&manifest)?.is_file() {
            return Err(io::Error::other("the manifest is not a file"));
        }
        File::open(manifest)?.take(MAX_MANIFEST_BYTES).read_to_string(&mut text)?;
        let manifest: Self = serde_json::from_str(&text)?;
        Ok(Self { path, ..manifest })
    }

    /// The path of the manifest, if a file exists there that is not a manifest. A manifest left by a crashed process may be
    /// overwritten.
    pub(crate) fn conflicting_manifest(path: &Path) -> Option<PathBuf> {
        let manifest = with_suffix(path, ".json");
        (fs::symlink_metadata(&manifest).is_ok() && Self::read(path).is_err()).then_some(manifest)
    }

    /// All backups of a folder that exist, latest first. Skips other files.
    pub(super) fn list_in(folder: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let file = path.with_extension("");
                found.extend(Self::read(&file).ok().filter(|_| file.exists()));
            }
        }
        found.sort_by(|a, b| (b.made_at, &b.path).cmp(&(a.made_at, &a.path)));
        Ok(found)
    }

    /// Writes the manifest next to the backup; durable when this returns.
    pub(crate) fn write(&self) -> io::Result<()> {
        let (manifest, partial) = (with_suffix(&self.path, ".json"), with_suffix(&self.path, ".json.half"));
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let written = File::create(&partial).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&partial, manifest)).inspect_err(|_| drop(fs::remove_file(&partial)))
    }
}
