//! Who a request claims to come from.
//!
//! In: what an owner says. Out: plain values; `credentials.rs` turns them into headers or a pair of the query.

use super::{RestError, Secret};

/// How requests show who they are from. What the caller of a tool has shown us is never passed on.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer(Secret),
    /// `Authorization: Basic …`.
    Basic {
        /// Who.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A key under a name of the service's own.
    ApiKey {
        /// Where it goes.
        location: KeyLocation,
        /// Its name there.
        name: String,
        /// The key.
        key: Secret,
    },
    /// OAuth 2 with client credentials: a token is fetched, kept until it expires, and fetched again once when it is refused.
    ClientCredentials {
        /// Where tokens are given out.
        token_url: String,
        /// Who asks.
        client_id: String,
        /// Its secret.
        client_secret: Secret,
        /// What it asks for; nothing where empty.
        scopes: Vec<String>,
        /// What else the service wants to be told, such as `audience`.
        extra_fields: Vec<(String, String)>,
    },
}

/// Where an API key goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyLocation {
    /// A header.
    Header,
    /// A pair of the query. It is left out of everything that is told about the request.
    Query,
    /// A cookie.
    Cookie,
}

impl Auth {
    /// A token.
    #[must_use]
    pub fn bearer(token: Secret) -> Self {
        Self::Bearer(token)
    }

    /// A name and a password.
    pub fn basic(user: impl Into<String>, password: Secret) -> Self {
        Self::Basic { user: user.into(), password }
    }

    /// A key in a header.
    pub fn header_key(name: impl Into<String>, key: Secret) -> Self {
        Self::ApiKey { location: KeyLocation::Header, name: name.into(), key }
    }

    /// A key in the query.
    pub fn query_key(name: impl Into<String>, key: Secret) -> Self {
        Self::ApiKey { location: KeyLocation::Query, name: name.into(), key }
    }

    /// A token that is fetched from `token_url`.
    pub fn client_credentials(
        token_url: impl Into<String>,
        client_id: impl Into<String>,
        client_secret: Secret,
    ) -> Self {
        let (token_url, client_id) = (token_url.into(), client_id.into());
        Self::ClientCredentials { token_url, client_id, client_secret, scopes: Vec::new(), extra_fields: Vec::new() }
    }

    /// Where a key goes and the name it takes there.
    pub(crate) fn key_parameter(&self) -> Option<(KeyLocation, &str)> {
        match self {
            Self::ApiKey { location: place, name, .. } => Some((*place, name)),
            _ => None,
        }
    }

    /// The secret it is made of.
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Bearer(secret)
            | Self::Basic { password: secret, .. }
            | Self::ApiKey { key: secret, .. }
            | Self::ClientCredentials { client_secret: secret, .. } => secret,
        }
    }

    /// The same with another secret.
    pub(crate) fn with_secret(mut self, other: Secret) -> Self {
        match &mut self {
            Self::Bearer(secret)
            | Self::Basic { password: secret, .. }
            | Self::ApiKey { key: secret, .. }
            | Self::ClientCredentials { client_secret: secret, .. } => *secret = other,
        }
        self
    }

    /// What is wrong with it.
    pub(crate) fn problems(&self) -> Vec<RestError> {
        let mut problems = Vec::new();
        let mut wrong = |problem: String| problems.push(RestError::new("auth", problem));
        match self {
            Self::ApiKey { name, .. } if name.is_empty() => wrong("the key has no `name`; say where it goes".into()),
            Self::ApiKey { location: KeyLocation::Header, name, .. } if super::parse_header_name(name).is_err() => {
                wrong(format!("`{name}` is no name of a header"));
            }
            Self::Basic { user, .. } if user.contains(':') || user.chars().any(char::is_control) => {
                wrong("the name of a user may not contain `:` or control characters".into());
            }
            Self::ClientCredentials { token_url, client_id, .. } => {
                if let Err(problem) = super::fixed_url::parse(token_url) {
                    wrong(format!("`token_url` {problem}"));
                }
                if client_id.is_empty() {
                    wrong("`client_id` is empty".into());
                }
            }
            _ => {}
        }
        if let Err(error) = self.secret().read() {
            wrong(error.to_string());
        }
        problems
    }
}
