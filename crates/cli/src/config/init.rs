//! Writes a first `toolhub.toml`.
//!
//! In: a folder and what is wanted. Out: a commented file that passes the check, and a line in `.gitignore` for the folder of
//! the store. An old file is replaced only when that is asked for.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::load::FILE_NAME;

/// What the file begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starter {
    /// The tools that the binary carries.
    Demo,
    /// No tools.
    Empty,
}

impl Starter {
    /// The text of the file.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Demo => include_str!("starter/demo.toml"),
            Self::Empty => include_str!("starter/empty.toml"),
        }
    }
}

/// Why nothing was written.
#[derive(Debug)]
pub(crate) enum InitError {
    /// There is a file already.
    Exists(PathBuf),
    /// The disk says no.
    Io(PathBuf, io::Error),
}

/// What git is told not to keep.
const GITIGNORE_ENTRY: &str = ".toolhub/";

/// Writes the file into a folder; and tells git about the folder of the store. Gives back what was written.
///
/// # Errors
/// When there is a file already and it is not to be replaced, or the disk says no.
pub(crate) fn write(folder: &Path, starter: Starter, force: bool) -> Result<Vec<PathBuf>, InitError> {
    let path = folder.join(FILE_NAME);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| InitError::Io(path, error)
    };
    if force {
        fs::write(&path, starter.text()).map_err(io(&path))?;
    } else {
        // Asked and made in one step: nothing that appears in between is lost.
        let made = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = made.map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => InitError::Exists(path.clone()),
            _ => InitError::Io(path.clone(), error),
        })?;
        io::Write::write_all(&mut file, starter.text().as_bytes()).map_err(io(&path))?;
    }
    let mut written = vec![path];
    let ignore = folder.join(".gitignore");
    let old = match fs::read_to_string(&ignore) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(io(&ignore))?,
    };
    let known = old.lines().any(|line| line.trim().trim_start_matches('/').trim_end_matches('/') == ".toolhub");
    if !known {
        let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        fs::write(&ignore, format!("{old}{gap}{GITIGNORE_ENTRY}\n")).map_err(io(&ignore))?;
        written.push(ignore);
    }
    Ok(written)
}
