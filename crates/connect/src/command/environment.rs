//! Builds the environment of a program: nothing is inherited unless it is configured or in [`DEFAULT_PASS_ENV`].
//!
//! In: the command, and the hub's own environment. Out: all variables of the program, and which of their values are secrets.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

use super::Command;

/// Shorter values are unlikely to be secrets, and redacting them would garble ordinary text.
const MIN_SECRET_LEN: usize = 8;

/// The variables of the hub that every program inherits: search path, home and temporary directory, and locale. Python and Node need
/// no others.
pub const DEFAULT_PASS_ENV: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL"];

/// `PATH` of a program if the hub itself has none.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) fn variables(command: &Command) -> BTreeMap<OsString, OsString> {
    let passed = DEFAULT_PASS_ENV.into_iter().chain(command.pass_env.iter().map(String::as_str));
    let mut all: BTreeMap<OsString, OsString> =
        passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    all.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into());
    all.extend(command.env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

/// The values to redact from the program's output: those of the configured variables, and each line of multi-line values, because
/// the output is read line by line. Longest first, since one secret may contain another.
pub(super) fn secrets(command: &Command, variables: &BTreeMap<OsString, OsString>) -> Vec<String> {
    let names = command.env.keys().chain(&command.pass_env).filter(|name| !DEFAULT_PASS_ENV.contains(&name.as_str()));
    let values = names.filter_map(|name| variables.get(OsStr::new(name))?.to_str());
    let parts = values.flat_map(|value| std::iter::once(value).chain(value.lines()));
    let mut secrets: Vec<String> = parts.filter(|part| part.len() >= MIN_SECRET_LEN).map(String::from).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}
