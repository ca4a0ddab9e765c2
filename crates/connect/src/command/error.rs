//! Why a program cannot be started. Each line says what is wrong and what to do; none holds an argument or the value of a variable,
//! for they may be secrets.

use std::{io, path::PathBuf};

/// A command that cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandError {
    /// No program was named.
    #[error("`command` is empty; name a program")]
    NoProgram,
    /// An argument or a value cannot be handed to a program.
    #[error("`{setting}` holds a NUL byte, which no program can be given; remove it")]
    Nul {
        /// The setting.
        setting: &'static str,
    },
    /// A variable cannot have this name.
    #[error("`{name}` cannot be the name of a variable; use letters, digits and `_`")]
    Variable {
        /// The name.
        name: String,
    },
    /// A limit allows nothing.
    #[error("`{setting}` is 0, so the program could not answer; use at least 1")]
    Zero {
        /// The setting.
        setting: &'static str,
    },
    /// The name is in no folder of `PATH`.
    #[error(
        "the program `{program}` is in none of the folders of PATH ({path}); install it, or write its whole path into `command`"
    )]
    NotInPath {
        /// The name.
        program: String,
        /// Where it was looked for.
        path: String,
    },
    /// The path leads nowhere.
    #[error("there is no file `{0}`; correct `command`")]
    NoFile(PathBuf),
    /// The path leads to a folder.
    #[error("`{0}` is no file; correct `command`")]
    NotAFile(PathBuf),
    /// The file may not be executed.
    #[error(
        "`{0}` may not be executed; allow it with `chmod +x`, or make its interpreter the `command` and the file its first argument"
    )]
    NotExecutable(PathBuf),
    /// The folder to run in is not there.
    #[error("the folder `{0}` does not exist; make it, or correct `cwd`")]
    NoFolder(PathBuf),
    /// What should be the folder to run in is none.
    #[error("`{0}` is no folder; correct `cwd`")]
    NotAFolder(PathBuf),
    /// The guard's program is not there.
    #[error("the guard `{0}` is not there, and without it nothing is started; put it back, or restart the hub")]
    NoGuard(PathBuf),
    /// The system has no room for another process at the moment.
    #[error(
        "the system has no room for another process: {0}; raise its limits, or lower `max_concurrency` of the tool"
    )]
    Full(io::Error),
    /// The system refused to start the program.
    #[error(
        "`{program}` could not be started: {source}; a script begins with `#!` and an interpreter that is installed, and a binary \
         must be made for this system"
    )]
    Refused {
        /// The program.
        program: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
