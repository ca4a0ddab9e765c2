//! How requests show who they are from, with the secrets fetched.
//!
//! In: which way was said, and what it needs. Out: values that can be compared and never show a secret, and what `rest` makes of them.

use crate::{
    config::{
        Diagnostics, KeyPath, SecretSource, SecretString,
        raw::{AuthWay, KeyPlace, RestAuth},
    },
    rest,
};

/// How requests show who they are from, with the secrets fetched. It can be compared, and shows none of them.
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
    /// Fetches what it needs; `None` when something is not there, which the desk is told. `at` is where it was said.
    pub fn fetch(&self, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Option<ResolvedAuth> {
        self.resolve_method(at, desk).map(ResolvedAuth)
    }

    fn resolve_method(&self, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Option<AuthMethod> {
        let mut wants = |key: &'static str, secret: &Option<SecretSource>| match secret {
            Some(secret) => secret.fetch(&at.key(key), desk),
            None => report_missing(key, self.auth_type, at, desk),
        };
        let text = |key: &'static str, text: &Option<String>, desk: &mut Diagnostics<'_>| match text {
            Some(text) => Some(text.clone()),
            None => report_missing(key, self.auth_type, at, desk),
        };
        match self.auth_type {
            AuthWay::Bearer => wants("token", &self.token).map(AuthMethod::Bearer),
            AuthWay::Basic => {
                let password = wants("password", &self.password);
                Some(AuthMethod::Basic(text("username", &self.username, desk)?, password?))
            }
            AuthWay::ApiKey => {
                let value = wants("value", &self.value);
                let place = match self.location {
                    None | Some(KeyPlace::Header) => rest::KeyLocation::Header,
                    Some(KeyPlace::Query) => rest::KeyLocation::Query,
                    Some(KeyPlace::Cookie) => rest::KeyLocation::Cookie,
                };
                Some(AuthMethod::ApiKey(place, text("name", &self.name, desk)?, value?))
            }
            AuthWay::Oauth2 => {
                let secret = wants("client_secret", &self.client_secret);
                let (token_url, id) =
                    (text("token_url", &self.token_url, desk), text("client_id", &self.client_id, desk));
                let fields = self.token_fields.clone().into_iter().collect();
                let scopes = self.scopes.clone();
                Some(AuthMethod::ClientCredentials { token_url: token_url?, id: id?, secret: secret?, scopes, fields })
            }
        }
    }
}

fn report_missing<T>(key: &str, way: AuthWay, at: &KeyPath, desk: &mut Diagnostics<'_>) -> Option<T> {
    let way = match way {
        AuthWay::Bearer => "bearer",
        AuthWay::Basic => "basic",
        AuthWay::ApiKey => "api_key",
        AuthWay::Oauth2 => "oauth2",
    };
    let help = format!("add `{key}`; a secret is written {key} = {{ env = \"NAME\" }}");
    desk.report(at, format!("`{at}` of the type \"{way}\" needs `{key}`"), help);
    None
}

pub(super) fn to_secret(hidden: &SecretString) -> rest::Secret {
    rest::Secret::literal(hidden.reveal())
}

impl ResolvedAuth {
    /// The same as `rest` takes it.
    #[must_use]
    pub fn to_rest(&self) -> rest::Auth {
        match &self.0 {
            AuthMethod::Bearer(token) => rest::Auth::bearer(to_secret(token)),
            AuthMethod::Basic(user, password) => rest::Auth::basic(user.as_str(), to_secret(password)),
            AuthMethod::ApiKey(place, name, key) => {
                rest::Auth::ApiKey { location: *place, name: name.clone(), key: to_secret(key) }
            }
            AuthMethod::ClientCredentials { token_url, id, secret: hidden, scopes, fields } => {
                rest::Auth::ClientCredentials {
                    token_url: token_url.clone(),
                    client_id: id.clone(),
                    client_secret: to_secret(hidden),
                    scopes: scopes.clone(),
                    extra_fields: fields.clone(),
                }
            }
        }
    }
}
