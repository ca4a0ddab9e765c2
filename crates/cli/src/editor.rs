//! Edits a text in the user's editor.
//!
//! In: a text. Out: the text as saved. `VISUAL`, or else `EDITOR`, names the program and its first arguments; no shell parses
//! them. The temporary file is readable by this user only, and removed afterwards.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{self, Command},
};

use toolhub::clock::{Clock as _, SystemClock};

use crate::failure::Failure;

/// Whether an editor is configured.
pub(crate) fn is_configured() -> bool {
    configured_editor().is_some()
}

/// Opens the editor and waits until it is closed. Blocks the runtime on purpose: the terminal belongs to the editor meanwhile.
///
/// # Errors
/// When no editor is configured, it cannot be started, or it exits with an error.
pub(crate) fn edit(text: &str) -> Result<String, Failure> {
    let command = configured_editor().ok_or_else(|| {
        Failure::usage("neither VISUAL nor EDITOR names an editor")
            .help("EDITOR=nano toolhub …")
            .help("or write the arguments as --edit JSON")
    })?;
    let failed = |what: &str, error: io::Error| Failure::unexpected(format!("{what}: {error}"));
    let file = TempFile::create(text).map_err(|error| failed("cannot create a temporary file", error))?;
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let status = Command::new(program).args(words).arg(&file.0).status();
    let status = status.map_err(|error| Failure::usage(format!("cannot start the editor `{program}`: {error}")))?;
    if !status.success() {
        return Err(Failure::usage(format!(
            "the editor `{program}` ended with {status}; the approval is still pending"
        )));
    }
    fs::read_to_string(&file.0).map_err(|error| failed("cannot read the edited file", error))
}

fn configured_editor() -> Option<String> {
    ["VISUAL", "EDITOR"].into_iter().find_map(|name| env::var(name).ok().filter(|value| !value.trim().is_empty()))
}

/// A temporary file, removed on drop.
struct TempFile(PathBuf);

impl TempFile {
    fn create(text: &str) -> io::Result<Self> {
        let name = format!("toolhub-{}-{}.json", process::id(), SystemClock.now().millis());
        let path = env::temp_dir().join(name);
        let mut file = create_private_file(&path)?;
        let temp_file = Self(path);
        file.write_all(text.as_bytes())?;
        Ok(temp_file)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a file with mode 0600. An existing file is an error, because another user may own it.
fn create_private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}
