//! What a program finds in its environment: nothing but what it is given.
//!
//! In: what the owner said, and the hub's own environment. Out: all variables of the program.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

use super::Command;

/// A value of fewer letters is hardly a secret, and may stand in any text.
const MIN_SECRET_LEN: usize = 8;

/// The variables of the hub that a program gets without being asked for: where programs are, where it may keep files, and the
/// language it speaks. Python and Node need no others.
pub const DEFAULT_PASS_ENV: [&str; 5] = ["PATH", "HOME", "TMPDIR", "LANG", "LC_ALL"];

/// Where programs are looked for if nobody says it.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) fn variables(command: &Command) -> BTreeMap<OsString, OsString> {
    let passed = DEFAULT_PASS_ENV.into_iter().chain(command.pass_env.iter().map(String::as_str));
    let mut all: BTreeMap<OsString, OsString> =
        passed.filter_map(|name| Some((name.into(), std::env::var_os(name)?))).collect();
    all.entry("PATH".into()).or_insert_with(|| DEFAULT_PATH.into());
    all.extend(command.env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

/// What must not be repeated when the program lets it slip: the values it was given by name, and each line of those that have
/// several, because what a program says is read by lines. The longest first: one may hold another.
pub(super) fn secrets(command: &Command, variables: &BTreeMap<OsString, OsString>) -> Vec<String> {
    let names = command.env.keys().chain(&command.pass_env).filter(|name| !DEFAULT_PASS_ENV.contains(&name.as_str()));
    let values = names.filter_map(|name| variables.get(OsStr::new(name))?.to_str());
    let parts = values.flat_map(|value| std::iter::once(value).chain(value.lines()));
    let mut secrets: Vec<String> = parts.filter(|part| part.len() >= MIN_SECRET_LEN).map(String::from).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.dedup();
    secrets
}
