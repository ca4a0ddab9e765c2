//! Reads a TOML file of the config.
//!
//! In: a path, and what named it. Out: its text, or why it cannot be read.

use std::{fs, io, path::Path as FilePath, sync::Arc};

use super::{
    problem::Problem,
    tree::{Origin, Source},
};

/// Maximum size of a config file.
const MAX_FILE_BYTES: u64 = 4 << 20;

pub(super) fn read(path: &FilePath, name: String, origin: &Origin) -> Result<Arc<Source>, Problem> {
    let failure = |why: String, help: &str| {
        Err(Problem::new(origin.clone(), "", format!("cannot read {name}: {why}")).help(help))
    };
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return failure("no such file".into(), "check the path; `toolhub init` creates a starter config");
        }
        Err(error) => return failure(error.to_string(), "check the path and its permissions"),
        Ok(metadata) if metadata.is_dir() => {
            return failure("it is a folder".into(), "name the file in it, such as toolhub.toml");
        }
        Ok(metadata) if metadata.len() > MAX_FILE_BYTES => {
            return failure("it is larger than 4MiB".into(), "check that this is the right file");
        }
        Ok(_) => {}
    }
    match fs::read(path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Arc::new(Source { name, path: path.to_owned(), text })),
        Ok(Err(_)) => failure("it is not UTF-8".into(), "save it as UTF-8"),
        Err(error) => failure(error.to_string(), "check its permissions"),
    }
}
