//! Why a program cannot be started. Each message says what is wrong and what to do; none contains an argument or the value of a
//! variable, which may be secrets.

use std::{io, path::PathBuf};

/// A command that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No program was named.
    #[error("`command` is empty; name a program")]
    NoProgram,
    /// An argument or a value contains a NUL byte.
    #[error("`{setting}` contains a NUL byte, which cannot be passed to a program; remove it")]
    Nul {
        /// The setting.
        setting: &'static str,
    },
    /// A variable cannot have this name.
    #[error("`{name}` is not a valid variable name; use letters, digits and `_`")]
    Variable {
        /// The name.
        name: String,
    },
    /// A limit is zero.
    #[error("`{setting}` is 0, so the program could not respond; use at least 1")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// The name is in no folder of `PATH`.
    #[error("program `{program}` not found in PATH ({path}); install it, or use its absolute path as `command`")]
    NotInPath {
        /// The name.
        program: String,
        /// The search path.
        path: String,
    },
    /// The file does not exist.
    #[error("file `{0}` does not exist; correct `command`")]
    NoFile(PathBuf),
    /// The path is not a regular file.
    #[error("`{0}` is not a file; correct `command`")]
    NotAFile(PathBuf),
    /// The file is not executable.
    #[error(
        "`{0}` is not executable; run `chmod +x` on it, or make its interpreter the `command` and the file its first argument"
    )]
    NotExecutable(PathBuf),
    /// The working directory does not exist.
    #[error("directory `{0}` does not exist; create it, or correct `cwd`")]
    NoFolder(PathBuf),
    /// The working directory is not a directory.
    #[error("`{0}` is not a directory; correct `cwd`")]
    NotAFolder(PathBuf),
    /// The guard's program does not exist.
    #[error("guard program `{0}` does not exist, so the program was not started; restore it, or restart the hub")]
    NoGuard(PathBuf),
    /// The system is out of processes, memory or file descriptors.
    #[error(
        "out of system resources for another process: {0}; raise the system limits, or lower `max_concurrency` of the tool"
    )]
    Full(io::Error),
    /// The system refused to start the program.
    #[error(
        "`{program}` could not be started: {source}; a script needs a `#!` line with an installed interpreter, a binary must be built \
         for this system"
    )]
    Refused {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
}
