//! Matches the security schemes of a document with the configured credentials.
//!
//! In: the security schemes of a document, the requirements of an operation, and credentials by scheme name. Out: descriptions of the
//! required credentials, and how the requests of an operation authenticate. Secrets are passed on unread.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::{
    ImportError,
    document::{Document, member_text},
};
use crate::rest::{Auth, KeyLocation, Secret};

/// The credential for one security scheme of a document.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Credential {
    /// A key or a token: for schemes of the types `apiKey`, `http` bearer, and `oauth2` with a token that was obtained elsewhere.
    Token(Secret),
    /// A user name and a password: for the scheme `http` basic.
    Password {
        /// The user name.
        user: String,
        /// The password.
        password: Secret,
    },
    /// An OAuth 2 client, for the client credentials flow.
    Client {
        /// The client ID.
        id: String,
        /// The client secret.
        secret: Secret,
    },
}

/// A security scheme that tools of the import use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheme {
    /// Its name in the document, which is also the key of its credential.
    pub name: String,
    /// Its kind, and where the credential is sent.
    pub kind: SchemeKind,
    /// Whether there is a credential for it.
    pub has_credential: bool,
    /// Suggested names of environment variables for its secret values, such as `PET_API_KEY`.
    pub variables: Vec<String>,
}

/// The kind of credential that a scheme needs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemeKind {
    /// `Authorization: Bearer …`.
    Bearer,
    /// `Authorization: Basic …`.
    Basic,
    /// A key in a header.
    HeaderKey(String),
    /// A key in the query.
    QueryKey(String),
    /// A key in a cookie.
    CookieKey(String),
    /// OAuth 2; tokens can be fetched with client credentials.
    ClientCredentials {
        /// The token endpoint.
        token_url: String,
    },
    /// OAuth 2 or OpenID Connect with an interactive flow; a token that was obtained elsewhere can be used.
    OtherToken,
    /// An unsupported scheme.
    Unknown(String),
}

impl SchemeKind {
    /// A description of the credential.
    #[must_use]
    pub fn description(&self) -> String {
        match self {
            Self::Bearer => "a token, sent as `Authorization: Bearer`".into(),
            Self::Basic => "a user and a password, sent as `Authorization: Basic`".into(),
            Self::HeaderKey(name) => format!("a key, sent in the header `{name}`"),
            Self::QueryKey(name) => format!("a key, sent in the query as `{name}`"),
            Self::CookieKey(name) => format!("a key, sent in the cookie `{name}`"),
            Self::ClientCredentials { token_url } => {
                format!("a client id and secret for OAuth 2 at {token_url}, or a token")
            }
            Self::OtherToken => "an access token that was obtained elsewhere, sent as `Authorization: Bearer`".into(),
            Self::Unknown(kind) => format!("`{kind}`, which is not supported"),
        }
    }

    fn variables(&self, prefix: &str, scheme: &str) -> Vec<String> {
        let name = |suffix: &str| {
            let joined =
                [prefix, scheme, suffix].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
            joined.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
        };
        match self {
            Self::Basic => vec![name("user"), name("password")],
            Self::ClientCredentials { .. } => vec![name("client_id"), name("client_secret")],
            Self::Unknown(_) => Vec::new(),
            _ => vec![name("")],
        }
    }
}

/// The authentication for one scheme.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) auth: Auth,
    /// A key in a header, which can be combined with other credentials.
    pub(super) key: Option<(String, Secret)>,
}

/// The schemes of a document and the credentials for them.
pub(super) struct Security<'d> {
    document: Document<'d>,
    schemes: BTreeMap<&'d str, SchemeKind>,
    credentials: &'d BTreeMap<String, Credential>,
}

/// How the requests of an operation authenticate.
#[derive(Debug, Clone, Default)]
pub(super) struct SigningPlan {
    /// The alternatives of the document; each is a list of schemes that are required together. Empty: the document defines none, or the
    /// operation is public.
    pub(super) alternatives: Vec<Vec<String>>,
    /// The credentials of the first alternative that is completely configured.
    pub(super) signatures: Vec<Signature>,
    /// Whether the document marks this operation as public.
    pub(super) is_public: bool,
}

impl<'d> Security<'d> {
    pub(super) fn new(
        document: Document<'d>,
        credentials: &'d BTreeMap<String, Credential>,
        document_url: Option<&Url>,
    ) -> Self {
        let definitions = document.root.pointer("/components/securitySchemes").and_then(Value::as_object);
        let schemes = definitions.into_iter().flatten().map(|(name, scheme)| {
            (name.as_str(), scheme_kind(document.resolve(scheme).unwrap_or(scheme), document_url))
        });
        Self { document, schemes: schemes.collect(), credentials }
    }

    /// Checks that each credential has a scheme of the right kind.
    pub(super) fn check(&self) -> Result<(), ImportError> {
        let invalid = |reason| Err(ImportError::Setting { setting: "credentials", reason });
        for (name, credential) in self.credentials {
            let Some(kind) = self.schemes.get(name.as_str()) else {
                let known: Vec<_> = self.schemes.keys().map(|name| format!("`{name}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return invalid(format!("the document has no security scheme `{name}`; it has {known}"));
            };
            if let Err(reason) = signature(name, kind, credential, Vec::new()) {
                return invalid(reason);
            }
        }
        Ok(())
    }

    /// Describes a scheme.
    pub(super) fn scheme(&self, name: &str, prefix: &str) -> Scheme {
        let kind = self.schemes.get(name).cloned().unwrap_or_else(|| SchemeKind::Unknown(name.to_owned()));
        let variables = kind.variables(prefix, name);
        Scheme { name: name.to_owned(), variables, has_credential: self.credentials.contains_key(name), kind }
    }

    /// How an operation authenticates.
    pub(super) fn signing_plan(&self, operation: &'d Value) -> Result<SigningPlan, String> {
        let security = operation.get("security").or_else(|| self.document.root.get("security"));
        let Some(requirements) = security.and_then(Value::as_array) else {
            return Ok(SigningPlan::default());
        };
        let names = |requirement: &Value| {
            requirement.as_object().map(|schemes| schemes.keys().cloned().collect()).unwrap_or_default()
        };
        let alternatives: Vec<Vec<String>> = requirements.iter().map(names).collect();
        let scopes = |index: usize, scheme: &str| {
            let scopes =
                requirements.get(index).and_then(|requirement| requirement.get(scheme)).and_then(Value::as_array);
            scopes.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let is_configured = |schemes: &Vec<String>| {
            !schemes.is_empty() && schemes.iter().all(|name| self.credentials.contains_key(name))
        };
        let mut signatures = Vec::new();
        if let Some(index) = alternatives.iter().position(is_configured) {
            for name in &alternatives[index] {
                let kind =
                    self.schemes.get(name.as_str()).ok_or_else(|| format!("there is no security scheme `{name}`"))?;
                signatures.push(signature(name, kind, &self.credentials[name], scopes(index, name))?);
            }
        }
        let is_public = alternatives.iter().all(Vec::is_empty);
        let alternatives = alternatives.into_iter().filter(|schemes| !schemes.is_empty()).collect();
        Ok(SigningPlan { alternatives, signatures, is_public })
    }
}

/// The kind of a scheme. Its token URL may be relative to the URL of the document.
fn scheme_kind(scheme: &Value, document_url: Option<&Url>) -> SchemeKind {
    let unknown = || SchemeKind::Unknown(member_text(scheme, "type").unwrap_or("no type").to_owned());
    match (member_text(scheme, "type"), member_text(scheme, "name")) {
        (Some("http"), _) => match member_text(scheme, "scheme").unwrap_or_default().to_ascii_lowercase().as_str() {
            "bearer" => SchemeKind::Bearer,
            "basic" => SchemeKind::Basic,
            other => SchemeKind::Unknown(format!("http {other}")),
        },
        (Some("apiKey"), Some(name)) => match member_text(scheme, "in") {
            Some("header") => SchemeKind::HeaderKey(name.to_owned()),
            Some("query") => SchemeKind::QueryKey(name.to_owned()),
            Some("cookie") => SchemeKind::CookieKey(name.to_owned()),
            _ => unknown(),
        },
        (Some("oauth2"), _) => {
            let flow = scheme.pointer("/flows/clientCredentials");
            match flow.and_then(|flow| member_text(flow, "tokenUrl")) {
                Some(token_url) => {
                    let absolute = document_url.and_then(|document_url| document_url.join(token_url).ok());
                    SchemeKind::ClientCredentials { token_url: absolute.map_or(token_url.to_owned(), String::from) }
                }
                None => SchemeKind::OtherToken,
            }
        }
        (Some("openIdConnect"), _) => SchemeKind::OtherToken,
        _ => unknown(),
    }
}

fn signature(name: &str, kind: &SchemeKind, credential: &Credential, scopes: Vec<String>) -> Result<Signature, String> {
    let key = |location: KeyLocation, name: &String, key: &Secret| Auth::ApiKey {
        location,
        name: name.clone(),
        key: key.clone(),
    };
    let auth = match (kind, credential) {
        (SchemeKind::HeaderKey(header), Credential::Token(secret)) => {
            let auth = key(KeyLocation::Header, header, secret);
            return Ok(Signature { auth, key: Some((header.clone(), secret.clone())) });
        }
        (SchemeKind::QueryKey(name), Credential::Token(secret)) => key(KeyLocation::Query, name, secret),
        (SchemeKind::CookieKey(name), Credential::Token(secret)) => key(KeyLocation::Cookie, name, secret),
        (
            SchemeKind::Bearer | SchemeKind::OtherToken | SchemeKind::ClientCredentials { .. },
            Credential::Token(secret),
        ) => Auth::bearer(secret.clone()),
        (SchemeKind::Basic, Credential::Password { user, password }) => Auth::basic(user.clone(), password.clone()),
        (SchemeKind::ClientCredentials { token_url }, Credential::Client { id, secret }) => Auth::ClientCredentials {
            token_url: token_url.clone(),
            client_id: id.clone(),
            client_secret: secret.clone(),
            scopes,
            extra_fields: Vec::new(),
        },
        (kind, _) => {
            return Err(format!(
                "the credential for `{name}` has the wrong type; the scheme needs {}",
                kind.description()
            ));
        }
    };
    Ok(Signature { auth, key: None })
}
