//! Resolves `[auth]`.

use toolhub::{
    clock::Timestamp,
    config::SecretText,
    ids::{Caller, Tenant},
};

use super::{
    super::{
        raw::{self, AuthMode, Scope},
        tree::Path,
    },
    Diagnostics, parse_datetime,
};

/// Authentication of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Auth {
    pub(crate) mode: AuthMode,
    pub(crate) keys: Vec<ApiKey>,
}

/// An API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiKey {
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    /// 64 hexadecimal digits, in lower case.
    pub(crate) sha256: SecretText,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires: Option<Timestamp>,
}

const CREATE_KEY_HELP: &str = "`toolhub keys create NAME` creates a key and prints the lines to add here";

pub(super) fn resolve(raw: &raw::Auth, diagnostics: &mut Diagnostics<'_>) -> Auth {
    let mut keys: Vec<ApiKey> = Vec::new();
    for (index, key) in raw.keys.iter().enumerate() {
        let at = Path::of(["auth", "keys"]).index(index);
        let name = Caller::new(key.name.as_str());
        if let Err(error) = &name {
            diagnostics.report(&at.key("name"), error.to_string(), "choose a short name, such as \"ci\"");
        }
        let tenant = Tenant::new(key.tenant.as_str());
        if let Err(error) = &tenant {
            diagnostics.report(&at.key("tenant"), error.to_string(), "omit it for \"main\"");
        }
        let sha256 = key.hash.fetch(&at.key("hash"), diagnostics).and_then(|text| {
            let digits = parse_sha256(text.reveal());
            if digits.is_none() {
                let message = format!("`{}` is not \"sha256:\" and 64 hexadecimal digits", at.key("hash"));
                diagnostics.report(
                    &at.key("hash"),
                    message,
                    format!("write the hash, never the key itself; {CREATE_KEY_HELP}"),
                );
            }
            digits
        });
        let (Ok(name), Ok(tenant), Some(sha256)) = (name, tenant, sha256) else { continue };
        if keys.iter().any(|other| other.name == name) {
            let help = "give each key a unique name: rules, limits and the audit log refer to it";
            diagnostics.report(&at.key("name"), format!("there are two keys named `{name}`"), help);
        }
        if keys.iter().any(|other| other.sha256 == sha256) {
            diagnostics.report(
                &at.key("hash"),
                "two keys have the same hash",
                format!("create a separate key for each holder; {CREATE_KEY_HELP}"),
            );
        }
        let expires = key.expires.as_deref().and_then(parse_datetime);
        keys.push(ApiKey { name, tenant, sha256, scopes: key.scopes.clone(), expires });
    }
    if raw.mode == AuthMode::Local && !raw.keys.is_empty() && !diagnostics.is_set(&Path::of(["auth", "mode"])) {
        let help = "add mode = \"keys\" to [auth] to require the keys; or mode = \"local\" to ignore them";
        diagnostics.report(&Path::of(["auth", "keys"]), "there are keys, but clients do not need one", help);
    }
    Auth { mode: raw.mode, keys }
}

fn parse_sha256(text: &str) -> Option<SecretText> {
    let digits = text.strip_prefix("sha256:")?;
    let is_valid = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_valid.then(|| SecretText::new(digits.to_lowercase()))
}
