//! What a backup must be like: a small JSON text beside it.
//!
//! In: a backup, or a folder of them. Out: what their manifests say. A manifest names no file: it belongs to the one it
//! lies beside.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use toolhub_storage::clock::Timestamp;

use super::with_suffix;

/// No manifest is longer.
const MAX_MANIFEST_BYTES: u64 = 64 * 1024;

/// A backup that was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backup {
    /// The file, or the folder.
    #[serde(skip)]
    pub path: PathBuf,
    /// The moment it is of.
    pub made_at: Timestamp,
    /// The schema of the store.
    pub schema: u32,
    /// How long the file is, or all files together.
    pub bytes: u64,
    /// How many rows it holds, or files.
    pub rows: u64,
    /// The SHA-256 of the file, in hex; of a folder, that of the list in it, which has one for each file.
    pub sha256: String,
}

impl Backup {
    /// What the manifest beside this backup says.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let mut text = String::new();
        let manifest = with_suffix(&path, ".json");
        if !fs::metadata(&manifest)?.is_file() {
            return Err(io::Error::other("the manifest is no file"));
        }
        File::open(manifest)?.take(MAX_MANIFEST_BYTES).read_to_string(&mut text)?;
        let read: Self = serde_json::from_str(&text)?;
        Ok(Self { path, ..read })
    }

    /// What has the place of the manifest of such a backup, and is none. One that a process left when it died may be replaced.
    pub(crate) fn conflicting_manifest(path: &Path) -> Option<PathBuf> {
        let manifest = with_suffix(path, ".json");
        (fs::symlink_metadata(&manifest).is_ok() && Self::read(path).is_err()).then_some(manifest)
    }

    /// All in a folder that are there themselves, the latest first. What is no backup is passed over.
    pub(super) fn list_in(folder: &Path) -> io::Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == "json") {
                let file = path.with_extension("");
                found.extend(Self::read(&file).ok().filter(|_| file.exists()));
            }
        }
        found.sort_by(|a, b| (b.made_at, &b.path).cmp(&(a.made_at, &a.path)));
        Ok(found)
    }

    /// Lays the manifest beside the backup; it is on the disk when this returns.
    pub(crate) fn write(&self) -> io::Result<()> {
        let (manifest, half) = (with_suffix(&self.path, ".json"), with_suffix(&self.path, ".json.half"));
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let written = File::create(&half).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.and_then(|()| fs::rename(&half, manifest)).inspect_err(|_| drop(fs::remove_file(&half)))
    }
}
