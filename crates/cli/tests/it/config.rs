//! Runs the binary with a controlled environment.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The result of a run of the binary.
#[derive(Debug)]
pub(crate) struct RunOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `toolhub` in a folder, with only these variables.
pub(crate) fn run_toolhub(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> RunOutput {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toolhub"));
    command.args(arguments).current_dir(folder).env_clear().env("HOME", folder).stdin(Stdio::null());
    let output = command.envs(variables.iter().copied()).output().expect("the binary can be started");
    let text = |bytes| String::from_utf8(bytes).expect("the binary writes UTF-8");
    RunOutput { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// The configs in `tests/it/config`.
pub(crate) fn load_cases(sort: &str) -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/config").join(sort);
    let files =
        std::fs::read_dir(&folder).expect("the folder is there").map(|file| file.expect("it can be listed").path());
    let mut cases: Vec<Case> =
        files.filter(|path| path.extension().is_some_and(|end| end == "toml")).map(Case::load).collect();
    cases.sort_by(|a, b| a.path.cmp(&b.path));
    cases
}

/// A config and how to load it: lines `# env: NAME=value`, `# flags: …` and `# beyond the schema`.
pub(crate) struct Case {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Case {
    fn load(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        Self { path, text }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.file_name().and_then(|name| name.to_str()).expect("it has a name")
    }

    /// Whether the schema accepts it although it is invalid.
    pub(crate) fn is_valid_by_schema(&self) -> bool {
        self.text.lines().any(|line| line == "# beyond the schema")
    }

    pub(crate) fn check(&self) -> RunOutput {
        let directives = |start: &'static str| self.text.lines().filter_map(move |line| line.strip_prefix(start));
        let variables: Vec<(&str, &str)> = directives("# env: ").filter_map(|line| line.split_once('=')).collect();
        let flags = directives("# flags: ").flat_map(str::split_whitespace);
        let arguments: Vec<&str> = ["config", "check", "--config", self.name()].into_iter().chain(flags).collect();
        run_toolhub(self.path.parent().expect("it lies in a folder"), &arguments, &variables)
    }
}
