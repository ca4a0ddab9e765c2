//! Authentication settings of a request.
//!
//! In: the owner's settings. Out: plain values; `credentials.rs` turns them into headers, cookies or query parameters.

use super::{RestError, Secret};

/// How requests authenticate. Credentials of the caller of a tool are never passed on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Auth {
    /// `Authorization: Bearer …`.
    Bearer(Secret),
    /// `Authorization: Basic …`.
    Basic {
        /// The user name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// An API key in a header, query parameter or cookie.
    ApiKey {
        /// Where it is sent.
        location: KeyLocation,
        /// The name of the header, query parameter or cookie.
        name: String,
        /// The key.
        key: Secret,
    },
    /// OAuth 2 client credentials: the token is fetched, cached until it expires, and fetched again once if the service refuses it.
    ClientCredentials {
        /// The token endpoint.
        token_url: String,
        /// The client ID.
        client_id: String,
        /// The client secret.
        client_secret: Secret,
        /// The requested scopes; may be empty.
        scopes: Vec<String>,
        /// Additional fields of the token request, such as `audience`.
        extra_fields: Vec<(String, String)>,
    },
}

/// Where an API key is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyLocation {
    /// A header.
    Header,
    /// A query parameter. It is omitted wherever the request is described.
    Query,
    /// A cookie.
    Cookie,
}

impl Auth {
    /// A bearer token.
    #[must_use]
    pub fn bearer(token: Secret) -> Self {
        Self::Bearer(token)
    }

    /// A user name and a password.
    pub fn basic(user: impl Into<String>, password: Secret) -> Self {
        Self::Basic { user: user.into(), password }
    }

    /// An API key in a header.
    pub fn header_key(name: impl Into<String>, key: Secret) -> Self {
        Self::ApiKey { location: KeyLocation::Header, name: name.into(), key }
    }

    /// An API key in the query.
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

    /// Location and name of an API key.
    pub(crate) fn key_parameter(&self) -> Option<(KeyLocation, &str)> {
        match self {
            Self::ApiKey { location, name, .. } => Some((*location, name)),
            _ => None,
        }
    }

    /// Its secret.
    pub(crate) fn secret(&self) -> &Secret {
        match self {
            Self::Bearer(secret)
            | Self::Basic { password: secret, .. }
            | Self::ApiKey { key: secret, .. }
            | Self::ClientCredentials { client_secret: secret, .. } => secret,
        }
    }

    /// Replaces its secret.
    pub(crate) fn with_secret(mut self, other: Secret) -> Self {
        match &mut self {
            Self::Bearer(secret)
            | Self::Basic { password: secret, .. }
            | Self::ApiKey { key: secret, .. }
            | Self::ClientCredentials { client_secret: secret, .. } => *secret = other,
        }
        self
    }

    /// The problems of these settings.
    pub(crate) fn problems(&self) -> Vec<RestError> {
        let mut problems = Vec::new();
        let mut report = |problem: String| problems.push(RestError::new("auth", problem));
        match self {
            Self::ApiKey { name, .. } if name.is_empty() => report("the API key has no `name`; set it".into()),
            Self::ApiKey { location: KeyLocation::Header, name, .. } if super::parse_header_name(name).is_err() => {
                report(format!("`{name}` is not a valid header name"));
            }
            Self::Basic { user, .. } if user.contains(':') || user.chars().any(char::is_control) => {
                report("the user name may not contain `:` or control characters".into());
            }
            Self::ClientCredentials { token_url, client_id, .. } => {
                if let Err(problem) = super::fixed_url::parse(token_url) {
                    report(format!("`token_url` {problem}"));
                }
                if client_id.is_empty() {
                    report("`client_id` is empty".into());
                }
            }
            _ => {}
        }
        if let Err(error) = self.secret().read() {
            report(error.to_string());
        }
        problems
    }
}
