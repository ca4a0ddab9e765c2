//! Finds what is to be started, so that what is missing can be said in words before anything happens.
//!
//! In: a command. Out: the whole path of its program, its environment and its folder, or what is wrong with them.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    io::ErrorKind,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{Command, CommandError, environment};

/// Everything a process is started with.
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
        let whole = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
        return check_executable(&whole).map(|()| whole);
    }
    // As a shell does: the first file of this name that may be executed. One that may not is told only if there is no other.
    let mut found = None;
    for folder in std::env::split_paths(path) {
        let here = folder.join(program);
        match check_executable(&here) {
            Ok(()) => return Ok(std::path::absolute(&here).unwrap_or(here)),
            Err(wrong @ CommandError::NotExecutable(_)) => found = found.or(Some(wrong)),
            Err(_) => {}
        }
    }
    Err(found.unwrap_or_else(|| CommandError::NotInPath {
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
