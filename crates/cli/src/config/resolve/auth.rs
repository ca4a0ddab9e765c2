//! What holds for `[auth]`.

use toolhub::{
    clock::Timestamp,
    config::SecretString,
    ids::{Caller, Tenant},
};

use super::{
    super::{
        raw::{self, Mode, Scope},
        tree::Path,
    },
    Diagnostics, parse_datetime,
};

/// Who may use the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Auth {
    pub(crate) mode: Mode,
    pub(crate) keys: Vec<ApiKey>,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiKey {
    pub(crate) name: Caller,
    pub(crate) tenant: Tenant,
    /// 64 hexadecimal digits, in small letters.
    pub(crate) sha256: SecretString,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires: Option<Timestamp>,
}

const CREATE_KEY_HELP: &str = "`toolhub keys create NAME` makes a key and prints what to write here";

pub(super) fn resolve(said: &raw::Auth, desk: &mut Diagnostics<'_>) -> Auth {
    let mut keys: Vec<ApiKey> = Vec::new();
    for (place, key) in said.keys.iter().enumerate() {
        let at = Path::of(["auth", "keys"]).index(place);
        let name = Caller::new(key.name.as_str());
        if let Err(error) = &name {
            desk.report(&at.key("name"), error.to_string(), "choose a short name, such as \"ci\"");
        }
        let tenant = Tenant::new(key.tenant.as_str());
        if let Err(error) = &tenant {
            desk.report(&at.key("tenant"), error.to_string(), "leave it out for \"main\"");
        }
        let sha256 = key.hash.fetch(&at.key("hash"), desk).and_then(|text| {
            let digits = parse_sha256(text.reveal());
            if digits.is_none() {
                let message = format!("`{}` is not \"sha256:\" and 64 hexadecimal digits", at.key("hash"));
                desk.report(
                    &at.key("hash"),
                    message,
                    format!("write the hash, never the key itself; {CREATE_KEY_HELP}"),
                );
            }
            digits
        });
        let (Ok(name), Ok(tenant), Some(sha256)) = (name, tenant, sha256) else { continue };
        if keys.iter().any(|other| other.name == name) {
            let help = "give each key a name of its own: rules, limits and the audit know it by that";
            desk.report(&at.key("name"), format!("there are two keys named `{name}`"), help);
        }
        if keys.iter().any(|other| other.sha256 == sha256) {
            desk.report(
                &at.key("hash"),
                "two keys have the same hash",
                format!("make each key anew; {CREATE_KEY_HELP}"),
            );
        }
        let expires = key.expires.as_deref().and_then(parse_datetime);
        keys.push(ApiKey { name, tenant, sha256, scopes: key.scopes.clone(), expires });
    }
    if said.mode == Mode::Local && !said.keys.is_empty() && !desk.is_set(&Path::of(["auth", "mode"])) {
        let help =
            "add mode = \"keys\" to [auth], so that the keys are asked for; or mode = \"local\", if they are not to be";
        desk.report(&Path::of(["auth", "keys"]), "there are keys, but nobody is asked for one", help);
    }
    Auth { mode: said.mode, keys }
}

fn parse_sha256(text: &str) -> Option<SecretString> {
    let digits = text.strip_prefix("sha256:")?;
    let right = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    right.then(|| SecretString::new(digits.to_lowercase()))
}
