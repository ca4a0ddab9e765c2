//! How requests show who they are from, with the secrets fetched.
//!
//! In: which way was said, and what it needs. Out: values that can be compared and never show a secret, and what `rest` makes of them.

use crate::{
    config::{
        Desk, Hidden, KeyPath, SecretSource,
        written::{AuthWay, KeyPlace, RestAuth},
    },
    rest,
};

/// How requests show who they are from, with the secrets fetched. It can be compared, and shows none of them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Auth(pub(super) Way);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Way {
    Bearer(Hidden),
    Basic(String, Hidden),
    Key(rest::KeyPlace, String, Hidden),
    Client { token_url: String, id: String, secret: Hidden, scopes: Vec<String>, fields: Vec<(String, String)> },
}

impl RestAuth {
    /// Fetches what it needs; `None` when something is not there, which the desk is told. `at` is where it was said.
    pub fn fetch(&self, at: &KeyPath, desk: &mut Desk<'_>) -> Option<Auth> {
        self.way(at, desk).map(Auth)
    }

    fn way(&self, at: &KeyPath, desk: &mut Desk<'_>) -> Option<Way> {
        let mut wants = |key: &'static str, secret: &Option<SecretSource>| match secret {
            Some(secret) => secret.fetch(&at.key(key), desk),
            None => missing(key, self.way, at, desk),
        };
        let text = |key: &'static str, text: &Option<String>, desk: &mut Desk<'_>| match text {
            Some(text) => Some(text.clone()),
            None => missing(key, self.way, at, desk),
        };
        match self.way {
            AuthWay::Bearer => wants("token", &self.token).map(Way::Bearer),
            AuthWay::Basic => {
                let password = wants("password", &self.password);
                Some(Way::Basic(text("username", &self.username, desk)?, password?))
            }
            AuthWay::ApiKey => {
                let value = wants("value", &self.value);
                let place = match self.place {
                    None | Some(KeyPlace::Header) => rest::KeyPlace::Header,
                    Some(KeyPlace::Query) => rest::KeyPlace::Query,
                    Some(KeyPlace::Cookie) => rest::KeyPlace::Cookie,
                };
                Some(Way::Key(place, text("name", &self.name, desk)?, value?))
            }
            AuthWay::Oauth2 => {
                let secret = wants("client_secret", &self.client_secret);
                let (token_url, id) =
                    (text("token_url", &self.token_url, desk), text("client_id", &self.client_id, desk));
                let fields = self.token_fields.clone().into_iter().collect();
                let scopes = self.scopes.clone();
                Some(Way::Client { token_url: token_url?, id: id?, secret: secret?, scopes, fields })
            }
        }
    }
}

fn missing<T>(key: &str, way: AuthWay, at: &KeyPath, desk: &mut Desk<'_>) -> Option<T> {
    let way = match way {
        AuthWay::Bearer => "bearer",
        AuthWay::Basic => "basic",
        AuthWay::ApiKey => "api_key",
        AuthWay::Oauth2 => "oauth2",
    };
    let help = format!("add `{key}`; a secret is written {key} = {{ env = \"NAME\" }}");
    desk.wrong(at, format!("`{at}` of the type \"{way}\" needs `{key}`"), help);
    None
}

pub(super) fn secret(hidden: &Hidden) -> rest::Secret {
    rest::Secret::plain(hidden.reveal())
}

impl Auth {
    /// The same as `rest` takes it.
    #[must_use]
    pub fn made(&self) -> rest::Auth {
        match &self.0 {
            Way::Bearer(token) => rest::Auth::bearer(secret(token)),
            Way::Basic(user, password) => rest::Auth::basic(user.as_str(), secret(password)),
            Way::Key(place, name, key) => rest::Auth::ApiKey { place: *place, name: name.clone(), key: secret(key) },
            Way::Client { token_url, id, secret: hidden, scopes, fields } => rest::Auth::ClientCredentials {
                token_url: token_url.clone(),
                client_id: id.clone(),
                client_secret: secret(hidden),
                scopes: scopes.clone(),
                more: fields.clone(),
            },
        }
    }
}
