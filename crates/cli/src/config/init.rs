//! Writes a starter `toolhub.toml`.
//!
//! In: a folder and which starter. Out: a commented file that passes the check, and an entry in `.gitignore` for the store's
//! folder. An existing file is overwritten only with `--force`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::load::FILE_NAME;

/// Which starter file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starter {
    /// With the bundled tools.
    Demo,
    /// Without tools.
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
    /// The file exists.
    Exists(PathBuf),
    /// An I/O error.
    Io(PathBuf, io::Error),
}

/// Added to `.gitignore`.
const GITIGNORE_ENTRY: &str = ".toolhub/";

/// Writes the file, and the store's folder into `.gitignore`. Returns the files written.
///
/// # Errors
/// When the file exists and `force` is not set, or on an I/O error.
pub(crate) fn write(folder: &Path, starter: Starter, force: bool) -> Result<Vec<PathBuf>, InitError> {
    let path = folder.join(FILE_NAME);
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| InitError::Io(path, error)
    };
    if force {
        fs::write(&path, starter.text()).map_err(io(&path))?;
    } else {
        // `create_new` checks and creates atomically, so no file is overwritten in a race.
        let created = fs::OpenOptions::new().write(true).create_new(true).open(&path);
        let mut file = created.map_err(|error| match error.kind() {
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
    let is_ignored = old.lines().any(|line| line.trim().trim_start_matches('/').trim_end_matches('/') == ".toolhub");
    if !is_ignored {
        let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
        fs::write(&ignore, format!("{old}{gap}{GITIGNORE_ENTRY}\n")).map_err(io(&ignore))?;
        written.push(ignore);
    }
    Ok(written)
}
