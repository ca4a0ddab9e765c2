//! Builds the environment of a program: nothing is inherited unless it is configured or in [`DEFAULT_PASS_ENV`].
//!
//! In: the command, and the hub's own environment. Out: all variables of the program, and which of their values are secrets.

use std::sync::Arc;
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
};

use toolhub_core::redact::is_secret_setting;
use toolhub_net::SecretText;

use super::Command;
use crate::secret_mask::SecretMask;

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

/// What must not leave a program.
#[derive(Debug, Default)]
pub(crate) struct ProgramSecrets {
    /// The values of all configured variables, for errors and logs.
    pub(crate) all: Arc<SecretMask>,
    /// The values of those with a secret name, for results: others may be part of a useful result.
    pub(crate) named: Arc<SecretMask>,
}

/// The values to mask: those of the configured variables and declared texts, and each line of multi-line values, because the output is read line by line.
pub(super) fn secrets(command: &Command, variables: &BTreeMap<OsString, OsString>) -> ProgramSecrets {
    let mask = |is_secret: fn(&str) -> bool| {
        let names = command.env.keys().chain(&command.pass_env).map(String::as_str);
        let names = names.filter(|name| !DEFAULT_PASS_ENV.contains(name) && is_secret(name));
        let values = names.filter_map(|name| variables.get(OsStr::new(name))?.to_str());
        let values = values.chain(command.secret_texts.iter().map(SecretText::reveal));
        let parts = values.flat_map(|value| std::iter::once(value).chain(value.lines()));
        Arc::new(SecretMask::new(parts.filter(|part| part.len() >= MIN_SECRET_LEN)))
    };
    ProgramSecrets { all: mask(|_| true), named: mask(is_secret_setting) }
}
