//! One process at a time has a store, and opens it once.
//!
//! In: the path of the store. Out: a lock that is held until it is dropped, or who holds it. The lock is the operating
//! system's, on a file beside the store, so it ends with its process however that ends; the text in the file only says
//! who it is.

use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

/// Who has a store open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// The number of the process, if it has said so yet.
    pub process: Option<u32>,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// Why a lock was not taken.
pub(crate) enum LockError {
    /// Somebody has it.
    InUse(LockHolder),
    /// Its file cannot be used.
    Io(PathBuf, io::Error),
}

/// Held while the store is open.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // On purpose and not only by closing it: a process that is being started at this moment has the file open too.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock of a store, also over from a process that died with it.
    pub(crate) fn acquire(store: &Path) -> Result<Self, LockError> {
        let mut path = store.as_os_str().to_owned();
        path.push(".lock");
        let failed = |error| LockError::Io(path.clone().into(), error);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = open.map_err(failed)?;
        match file.try_lock() {
            Ok(()) => write_holder(&mut file).map_err(failed)?,
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                // Whatever cannot be read is not known; that the store is in use is certain.
                let _ = file.read_to_string(&mut text);
                return Err(LockError::InUse(LockHolder::parse(&text)));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The file is left behind when the lock ends: whoever removed it might remove one that is held already.
        Ok(Self { file })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    // In one piece, so that nobody reads a half of it.
    file.write_all(format!("process {}\nsince {}\n", std::process::id(), SystemClock.now()).as_bytes())
}

impl LockHolder {
    fn parse(text: &str) -> Self {
        let word = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let process = word("process").and_then(|process| process.parse().ok());
        Self { process, since: word("since").and_then(|since| since.parse().ok()) }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.process {
            Some(process) => write!(f, "process {process}")?,
            None => f.write_str("another process")?,
        }
        self.since.map_or(Ok(()), |since| write!(f, " since {since}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_named_as_far_as_it_is_known() {
        let whole = LockHolder::parse("process 12\nsince 2024-01-01T12:00:00.007Z\n");
        assert_eq!(whole.to_string(), "process 12 since 2024-01-01T12:00:00.007Z");
        for unknown in ["", "process", "process x\nsince then", "\0\u{1}"] {
            assert_eq!(LockHolder::parse(unknown).to_string(), "another process");
        }
    }
}
