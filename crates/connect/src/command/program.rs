//! Resolves program, working directory and guard before the spawn, so that a missing one gets a precise error.
//!
//! In: a command. Out: the absolute path of its program and its environment, or a `CommandError`.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{Command, CommandError, environment};

/// The resolved program and environment of a process.
pub(super) struct LaunchSpec {
    pub(super) program: PathBuf,
    pub(super) variables: BTreeMap<OsString, OsString>,
}

pub(super) fn resolve(command: &Command) -> Result<LaunchSpec, CommandError> {
    let variables = environment::variables(command);
    let path = variables.get(OsStr::new("PATH")).map_or(OsStr::new(""), OsString::as_os_str);
    let program = locate(&command.program, path)?;
    if let Some(folder) = &command.cwd {
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(CommandError::NotAFolder(folder.clone())),
            Err(_) => return Err(CommandError::NoFolder(folder.clone())),
        }
    }
    if let Some(guard) = &command.guard
        && !guard.path().is_file()
    {
        return Err(CommandError::NoGuard(guard.path().to_owned()));
    }
    Ok(LaunchSpec { program, variables })
}

fn locate(program: &Path, path: &OsStr) -> Result<PathBuf, CommandError> {
    if program.components().count() > 1 || program.is_absolute() {
        let absolute = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
        return check_executable(&absolute).map(|()| absolute);
    }
    // Like a shell: the first executable file of this name. One that is not executable is reported only if there is no other.
    let mut not_executable = None;
    for folder in std::env::split_paths(path) {
        let candidate = folder.join(program);
        match check_executable(&candidate) {
            Ok(()) => return Ok(std::path::absolute(&candidate).unwrap_or(candidate)),
            Err(error @ CommandError::NotExecutable(_)) => not_executable = not_executable.or(Some(error)),
            Err(_) => {}
        }
    }
    Err(not_executable.unwrap_or_else(|| CommandError::NotInPath {
        program: program.to_string_lossy().into_owned(),
        path: path.to_string_lossy().into_owned(),
    }))
}

fn check_executable(file: &Path) -> Result<(), CommandError> {
    match fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(CommandError::NotAFile(file.to_owned())),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => Err(CommandError::NotExecutable(file.to_owned())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(CommandError::NotExecutable(file.to_owned())),
        Err(_) => Err(CommandError::NoFile(file.to_owned())),
    }
}
