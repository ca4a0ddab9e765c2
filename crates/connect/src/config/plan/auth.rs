//! Resolves the authentication of requests and fetches its secrets.
//!
//! In: the `auth` table of a tool. Out: the `rest::Auth`, with its secrets fetched.

use toolhub_net::Secret;

use crate::{
    config::{
        Diagnostics, KeyPath, SecretSource,
        raw::{AuthType, KeyLocation, RestAuth},
    },
    rest,
};

impl RestAuth {
    /// Fetches the secrets of the table at `at`. Reports what is missing, and returns `None` then.
    pub fn fetch(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<rest::Auth> {
        let mut secret = |key: &'static str, source: &Option<SecretSource>| match source {
            Some(source) => source.fetch(&at.key(key), diagnostics).map(Secret::from),
            None => report_missing(key, self.auth_type, at, diagnostics),
        };
        let text = |key: &'static str, value: &Option<String>, diagnostics: &mut Diagnostics<'_>| match value {
            Some(value) => Some(value.clone()),
            None => report_missing(key, self.auth_type, at, diagnostics),
        };
        match self.auth_type {
            AuthType::Bearer => secret("token", &self.token).map(rest::Auth::Bearer),
            AuthType::Basic => {
                let password = secret("password", &self.password);
                Some(rest::Auth::basic(text("username", &self.username, diagnostics)?, password?))
            }
            AuthType::ApiKey => {
                let value = secret("value", &self.value);
                let location = match self.location {
                    None | Some(KeyLocation::Header) => rest::KeyLocation::Header,
                    Some(KeyLocation::Query) => rest::KeyLocation::Query,
                    Some(KeyLocation::Cookie) => rest::KeyLocation::Cookie,
                };
                Some(rest::Auth::ApiKey { location, name: text("name", &self.name, diagnostics)?, key: value? })
            }
            AuthType::Oauth2 => {
                let client_secret = secret("client_secret", &self.client_secret);
                let (token_url, id) =
                    (text("token_url", &self.token_url, diagnostics), text("client_id", &self.client_id, diagnostics));
                Some(rest::Auth::ClientCredentials {
                    token_url: token_url?,
                    client_id: id?,
                    client_secret: client_secret?,
                    scopes: self.scopes.clone(),
                    extra_fields: self.token_fields.clone().into_iter().collect(),
                })
            }
        }
    }
}

fn report_missing<T>(key: &str, auth_type: AuthType, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<T> {
    let auth_type = match auth_type {
        AuthType::Bearer => "bearer",
        AuthType::Basic => "basic",
        AuthType::ApiKey => "api_key",
        AuthType::Oauth2 => "oauth2",
    };
    let help = format!("add `{key}`; a secret is written {key} = {{ env = \"NAME\" }}");
    diagnostics.report(at, format!("`{at}` of type \"{auth_type}\" needs `{key}`"), help);
    None
}
