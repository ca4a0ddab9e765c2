//! Exclusive lock of a store: one process opens it, once.
//!
//! In: the path of the store. Out: a lock that is held until dropped, or its current holder. It is an operating system lock
//! on a file next to the store, so it ends with its process, even after a crash; the text in the file only names the holder.

use std::{
    fmt,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
};

use toolhub_storage::clock::{Clock, SystemClock, Timestamp};

/// The process that has a store open.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockHolder {
    /// The process id, if the lock file contains it already.
    pub process: Option<u32>,
    /// When it took the lock.
    pub since: Option<Timestamp>,
}

/// Why a lock was not taken.
pub(crate) enum LockError {
    /// Another holder has the lock.
    InUse(LockHolder),
    /// The lock file cannot be opened, locked or written.
    Io(PathBuf, io::Error),
}

/// An exclusive lock, held while the store is open.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Explicitly, not only by closing the file: a child process that is just being forked has inherited the descriptor.
        let _ = self.file.unlock();
    }
}

impl Lock {
    /// Takes the lock of a store; the lock of a dead process is free.
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
                // The holder is informational: the store is in use even if the text cannot be read.
                let _ = file.read_to_string(&mut text);
                return Err(LockError::InUse(LockHolder::parse(&text)));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        // The lock file is never deleted: a process could delete a file that another one has already locked.
        Ok(Self { file })
    }
}

fn write_holder(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    // In one write, so that a reader does not see part of it.
    file.write_all(format!("process {}\nsince {}\n", std::process::id(), SystemClock.now()).as_bytes())
}

impl LockHolder {
    fn parse(text: &str) -> Self {
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let process = field("process").and_then(|process| process.parse().ok());
        Self { process, since: field("since").and_then(|since| since.parse().ok()) }
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
        let complete = LockHolder::parse("process 12\nsince 2024-01-01T12:00:00.007Z\n");
        assert_eq!(complete.to_string(), "process 12 since 2024-01-01T12:00:00.007Z");
        for unknown in ["", "process", "process x\nsince then", "\0\u{1}"] {
            assert_eq!(LockHolder::parse(unknown).to_string(), "another process");
        }
    }
}
