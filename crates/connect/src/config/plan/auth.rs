//! Resolves the authentication of requests and fetches its secrets.
//!
//! In: the `auth` table of a tool. Out: values that can be compared and never print a secret, and their conversion to `rest::Auth`.

use crate::{
    config::{
        Diagnostics, KeyPath, SecretSource, SecretString,
        raw::{AuthType, KeyLocation, RestAuth},
    },
    rest,
};

/// The authentication of requests, with the secrets fetched. Can be compared, and prints no secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResolvedAuth(pub(super) AuthMethod);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum AuthMethod {
    Bearer(SecretString),
    Basic(String, SecretString),
    ApiKey(rest::KeyLocation, String, SecretString),
    ClientCredentials {
        token_url: String,
        id: String,
        secret: SecretString,
        scopes: Vec<String>,
        fields: Vec<(String, String)>,
    },
}

impl RestAuth {
    /// Fetches the secrets of the table at `at`. Reports what is missing, and returns `None` then.
    pub fn fetch(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<ResolvedAuth> {
        self.resolve_method(at, diagnostics).map(ResolvedAuth)
    }

    fn resolve_method(&self, at: &KeyPath, diagnostics: &mut Diagnostics<'_>) -> Option<AuthMethod> {
        let mut secret = |key: &'static str, source: &Option<SecretSource>| match source {
            Some(source) => source.fetch(&at.key(key), diagnostics),
            None => report_missing(key, self.auth_type, at, diagnostics),
        };
        let text = |key: &'static str, value: &Option<String>, diagnostics: &mut Diagnostics<'_>| match value {
            Some(value) => Some(value.clone()),
            None => report_missing(key, self.auth_type, at, diagnostics),
        };
        match self.auth_type {
            AuthType::Bearer => secret("token", &self.token).map(AuthMethod::Bearer),
            AuthType::Basic => {
                let password = secret("password", &self.password);
                Some(AuthMethod::Basic(text("username", &self.username, diagnostics)?, password?))
            }
            AuthType::ApiKey => {
                let value = secret("value", &self.value);
                let location = match self.location {
                    None | Some(KeyLocation::Header) => rest::KeyLocation::Header,
                    Some(KeyLocation::Query) => rest::KeyLocation::Query,
                    Some(KeyLocation::Cookie) => rest::KeyLocation::Cookie,
                };
                Some(AuthMethod::ApiKey(location, text("name", &self.name, diagnostics)?, value?))
            }
            AuthType::Oauth2 => {
                let client_secret = secret("client_secret", &self.client_secret);
                let (token_url, id) =
                    (text("token_url", &self.token_url, diagnostics), text("client_id", &self.client_id, diagnostics));
                let fields = self.token_fields.clone().into_iter().collect();
                let scopes = self.scopes.clone();
                Some(AuthMethod::ClientCredentials {
                    token_url: token_url?,
                    id: id?,
                    secret: client_secret?,
                    scopes,
                    fields,
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

pub(super) fn to_secret(text: &SecretString) -> rest::Secret {
    rest::Secret::literal(text.reveal())
}

impl ResolvedAuth {
    /// Converts to the type that `rest` uses.
    #[must_use]
    pub fn to_rest(&self) -> rest::Auth {
        match &self.0 {
            AuthMethod::Bearer(token) => rest::Auth::bearer(to_secret(token)),
            AuthMethod::Basic(user, password) => rest::Auth::basic(user.as_str(), to_secret(password)),
            AuthMethod::ApiKey(location, name, key) => {
                rest::Auth::ApiKey { location: *location, name: name.clone(), key: to_secret(key) }
            }
            AuthMethod::ClientCredentials { token_url, id, secret, scopes, fields } => rest::Auth::ClientCredentials {
                token_url: token_url.clone(),
                client_id: id.clone(),
                client_secret: to_secret(secret),
                scopes: scopes.clone(),
                extra_fields: fields.clone(),
            },
        }
    }
}
