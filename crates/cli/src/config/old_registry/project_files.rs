//! Reads the files of an old registry, and keeps them inside the project.
//!
//! In: paths as written, and the folder they are relative to. Out: parsed files. A file that is missing is only noted; one that is
//! reached through a link out of the project is a problem.

use std::{
    io,
    path::{Path as FilePath, PathBuf},
    sync::Arc,
};

use super::{
    super::{
        source_file,
        tree::{self, Node, Origin},
    },
    findings::Findings,
};

/// The project of a registry.
pub(super) struct ProjectFiles<'a> {
    /// Its folder, without links.
    root: PathBuf,
    /// The working folder, which the names of files in messages are relative to.
    cwd: &'a FilePath,
    /// The files that were read, and the folders that were listed or searched for a file.
    pub(super) files: Vec<PathBuf>,
    pub(super) folders: Vec<PathBuf>,
}

/// What is at a path.
pub(super) enum Found {
    File(PathBuf),
    Folder(PathBuf),
    Nothing,
    /// Something that cannot be used, which was reported.
    Unusable,
}

impl<'a> ProjectFiles<'a> {
    /// `base` is the folder of the config; a registry outside of it is in a project of its own.
    pub(super) fn new(registry: &FilePath, base: &FilePath, cwd: &'a FilePath) -> Self {
        let canonical = |path: &FilePath| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (registry, base) = (canonical(registry), canonical(base));
        let folder = registry.parent().unwrap_or(&base);
        let root = match folder.strip_prefix(&base) {
            Ok(_) => base,
            Err(_) if folder.ends_with("configs/tools") => folder.ancestors().nth(2).unwrap_or(folder).to_owned(),
            Err(_) => folder.to_owned(),
        };
        Self { root, cwd, files: Vec::new(), folders: Vec::new() }
    }

    pub(super) fn root(&self) -> &FilePath {
        &self.root
    }

    /// The name of a file in messages.
    pub(super) fn display(&self, path: &FilePath) -> String {
        let canonical_cwd = self.cwd.canonicalize().unwrap_or_else(|_| self.cwd.to_owned());
        let relative = path.strip_prefix(self.cwd).or_else(|_| path.strip_prefix(canonical_cwd));
        relative.unwrap_or(path).display().to_string()
    }

    /// What is at a path that is written at `origin`.
    pub(super) fn find(&mut self, path: &FilePath, origin: &Origin, findings: &mut Findings) -> Found {
        self.folders.extend(path.parent().map(FilePath::to_owned));
        let name = self.display(path);
        let real = match path.canonicalize() {
            Ok(real) => real,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
            Err(error) => {
                findings.report(origin, format!("cannot read {name}: {error}"), "check the path and its permissions");
                return Found::Unusable;
            }
        };
        if !real.starts_with(&self.root) {
            let help = "copy it into the project, or remove it from the registry";
            findings.report(origin, format!("{name} leads out of the project"), help);
            return Found::Unusable;
        }
        match real.metadata() {
            Ok(metadata) if metadata.is_file() => Found::File(real),
            Ok(metadata) if metadata.is_dir() => Found::Folder(real),
            _ => {
                findings.report(origin, format!("{name} is not a file"), "remove it from the registry");
                Found::Unusable
            }
        }
    }

    /// Parses a file. `None` if that is not possible, which is reported.
    pub(super) fn read(&mut self, path: &FilePath, origin: &Origin, findings: &mut Findings) -> Option<Node> {
        self.files.push(path.to_owned());
        let source = match source_file::read(path, self.display(path), origin) {
            Ok(source) => source,
            Err(problem) => {
                findings.problems.push(problem);
                return None;
            }
        };
        let (mut node, problems) = tree::parse(&Arc::clone(&source));
        let is_valid = problems.is_empty();
        findings.problems.extend(problems);
        // The root has no key; its place is the first line.
        node.origin = Origin::File { source, span: 0..0 };
        node.key_origin = node.origin.clone();
        is_valid.then_some(node)
    }
}
