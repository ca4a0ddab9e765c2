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

/// Programs whose first script argument is what they run.
const INTERPRETERS: [&str; 15] = [
    "bash", "bun", "deno", "lua", "node", "perl", "php", "python", "python3", "rscript", "ruby", "sh", "tsx", "uv",
    "zsh",
];
/// File extensions of scripts.
const SCRIPT_EXTENSIONS: [&str; 12] = ["py", "js", "mjs", "cjs", "ts", "mts", "rb", "pl", "php", "sh", "lua", "r"];

/// The index of the argument that names the script of an interpreter, if that file does not exist.
pub(super) fn missing_script(command: &Command) -> Option<usize> {
    let name = command.program.file_stem()?.to_string_lossy().to_lowercase();
    if !INTERPRETERS.contains(&name.as_str()) {
        return None;
    }
    let is_script = |text: &str| {
        let extension = Path::new(text).extension().map(|extension| extension.to_string_lossy().to_lowercase());
        extension.is_some_and(|extension| SCRIPT_EXTENSIONS.contains(&extension.as_str()))
    };
    let index = command.args.iter().position(|text| !text.starts_with('-') && is_script(text))?;
    // Code or a module name follows these flags; what comes after it are arguments of the code.
    if command.args[..index].iter().any(|text| matches!(text.as_str(), "-c" | "-m" | "--eval")) {
        return None;
    }
    let path = command.cwd.as_deref().unwrap_or(Path::new("")).join(&command.args[index]);
    (!path.exists()).then_some(index)
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
