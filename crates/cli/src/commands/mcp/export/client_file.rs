//! Changes a file of another program: a copy is kept, and the file is replaced as a whole.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use toolhub::clock::{Clock, SystemClock};

use crate::{commands::import::config_file, failure::Failure};

/// Folders of clients in a project or a home folder.
const CLIENT_FOLDERS: [&str; 4] = [".codex", ".cursor", ".gemini", ".vscode"];

/// What was done to a file.
pub(super) struct FileChange {
    pub(super) is_changed: bool,
    /// The copy of the file from before.
    pub(super) backup: Option<PathBuf>,
}

/// Changes a file, or creates it.
///
/// # Errors
/// When it cannot be read, changed or written. It is then as before.
pub(super) fn change(file: &Path, edit: impl FnOnce(&str) -> Result<String, String>) -> Result<FileChange, Failure> {
    let refused = |reason: &dyn std::fmt::Display| {
        Failure::usage(format!("cannot change {}: {reason}", file.display()))
            .help("correct the file, or print the lines without --write and add them yourself")
    };
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(refused(&"it is not a file"));
    }
    let before = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        read => Some(read.map_err(|error| refused(&error))?),
    };
    let text = before.as_deref().unwrap_or_default();
    let after = match text.contains("\r\n") {
        true => edit(&text.replace("\r\n", "\n")).map(|after| after.replace('\n', "\r\n")),
        false => edit(text),
    };
    let after = after.map_err(|reason| refused(&reason))?;
    if before.as_ref() == Some(&after) {
        return Ok(FileChange { is_changed: false, backup: None });
    }
    let Some(_) = before else {
        create_client_folder(file).map_err(|error| refused(&error))?;
        fs::write(file, after).map_err(|error| refused(&error))?;
        return Ok(FileChange { is_changed: true, backup: None });
    };
    let backup = copy(file).map_err(|error| refused(&error))?;
    config_file::atomic_replace(file, &after).map_err(|error| refused(&error))?;
    Ok(FileChange { is_changed: true, backup: Some(backup) })
}

/// Creates the folder of a new file if it is one that clients create themselves.
fn create_client_folder(file: &Path) -> io::Result<()> {
    let Some(folder) = file.parent().filter(|folder| !folder.exists()) else { return Ok(()) };
    match folder.file_name().is_some_and(|name| CLIENT_FOLDERS.iter().any(|known| name == *known)) {
        true => fs::create_dir(folder),
        false => Ok(()),
    }
}

/// Copies a file beside itself.
fn copy(file: &Path) -> io::Result<PathBuf> {
    let time: String = SystemClock.now().to_string().chars().filter(char::is_ascii_alphanumeric).collect();
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".bak-{time}"));
    let backup = file.with_file_name(name);
    fs::copy(file, &backup)?;
    Ok(backup)
}
