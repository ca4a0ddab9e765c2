//! Rules of the repository that the compiler cannot check.
//!
//! In: the files of the workspace and the output of `cargo metadata`. Each rule is a module below, with a plain
//! function from text to complaints; this file collects the texts.

mod crate_dependencies;
mod document_paths;
mod external_references;
mod invariants;
mod layers;
mod lexer;
mod package_use;
mod plain_words;
mod seeds;
mod type_names;
mod unsafe_code;

pub(crate) use seeds::function_names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A file of the repository: its path from the root, and its text.
pub(crate) struct SourceFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every text that is written by hand. Generated files (lock files, the dashboard's build) follow no rules of ours.
fn source_files() -> Vec<SourceFile> {
    let mut found = Vec::new();
    collect(&workspace_root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

pub(crate) fn rust_files() -> Vec<SourceFile> {
    source_files().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

fn collect(dir: &Path, found: &mut Vec<SourceFile>) {
    for entry in fs::read_dir(dir).expect("a folder of the repository can be listed") {
        let path = entry.expect("a folder of the repository can be listed").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !["target", ".git", "node_modules", "venv", ".venv"].contains(&name) {
                collect(&path, found);
            }
        } else if is_written_by_hand(name)
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push(SourceFile { path: relative_to_root(&path), text });
        }
    }
}

fn is_written_by_hand(name: &str) -> bool {
    match name.rsplit_once('.') {
        // Scripts and licences have no extension.
        None => true,
        Some((_, ending)) => ["rs", "md", "toml", "py", "ts", "tsx", "css", "sh", "yml", "yaml"].contains(&ending),
    }
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps"])
        .current_dir(workspace_root())
        .output()
        .expect("the cargo that built this test can be run again");
    assert!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn workspace_root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.ancestors().nth(2).expect("this crate lives two folders below the root").to_owned()
}

fn relative_to_root(path: &Path) -> String {
    path.strip_prefix(workspace_root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

#[track_caller]
fn assert_none(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
