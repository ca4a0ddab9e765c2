//! A text in the editor of whoever sits here.
//!
//! In: a text. Out: the text as it was saved. `VISUAL`, or else `EDITOR`, names the program and its first arguments; no shell
//! reads them. The file is this user's alone, and gone afterwards.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{self, Command},
};

use toolhub::clock::{Clock as _, SystemClock};

use crate::failure::Failure;

/// Whether there is an editor to open.
pub(crate) fn is_configured() -> bool {
    configured_editor().is_some()
}

/// Opens the editor and waits until it is closed. Nothing else is done here meanwhile: the terminal is the editor's.
///
/// # Errors
/// When no editor is named, it cannot be started, or it says that it failed.
pub(crate) fn edit(text: &str) -> Result<String, Failure> {
    let named = configured_editor().ok_or_else(|| {
        Failure::usage("neither VISUAL nor EDITOR names an editor")
            .help("EDITOR=nano toolhub …")
            .help("or write the arguments as --edit JSON")
    })?;
    let failed = |what: &str, error: io::Error| Failure::unexpected(format!("{what}: {error}"));
    let file = TempFile::create(text).map_err(|error| failed("there is no file to edit in", error))?;
    let mut words = named.split_whitespace();
    let program = words.next().unwrap_or_default();
    let ended = Command::new(program).args(words).arg(&file.0).status();
    let ended = ended.map_err(|error| Failure::usage(format!("the editor `{program}` cannot be started: {error}")))?;
    if !ended.success() {
        return Err(Failure::usage(format!("the editor `{program}` ended with {ended}; nothing was answered")));
    }
    fs::read_to_string(&file.0).map_err(|error| failed("what was edited cannot be read", error))
}

fn configured_editor() -> Option<String> {
    ["VISUAL", "EDITOR"].into_iter().find_map(|name| env::var(name).ok().filter(|said| !said.trim().is_empty()))
}

/// A file that goes away.
struct TempFile(PathBuf);

impl TempFile {
    fn create(text: &str) -> io::Result<Self> {
        let name = format!("toolhub-{}-{}.json", process::id(), SystemClock.now().millis());
        let path = env::temp_dir().join(name);
        let mut file = create_private_file(&path)?;
        let scratch = Self(path);
        file.write_all(text.as_bytes())?;
        Ok(scratch)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A new file that nobody else can read. One that is there already is somebody else's.
fn create_private_file(path: &Path) -> io::Result<fs::File> {
    let mut options = fs::OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.write(true).create_new(true).open(path)
}
