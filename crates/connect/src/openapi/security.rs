//! Who requests claim to come from: what a document asks for, and what an owner gave.
//!
//! In: the security schemes of a document, the requirements of an operation, and credentials by scheme. Out: what is needed, in words
//! and names, and for one operation how its requests are to be signed. Secrets are passed on unread.

use std::collections::BTreeMap;

use serde_json::Value;
use url::Url;

use super::{
    ImportError,
    document::{Document, member_text},
};
use crate::rest::{Auth, KeyLocation, Secret};

/// What an owner gives for one security scheme of a document.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Credential {
    /// A key or a token: for schemes of the types `apiKey`, `http` bearer, and `oauth2` where the token was fetched elsewhere.
    Token(Secret),
    /// A name and a password: for the scheme `http` basic.
    Password {
        /// Who.
        user: String,
        /// The password.
        password: Secret,
    },
    /// A client of an OAuth 2 server that gives out tokens for client credentials.
    Client {
        /// Who asks.
        id: String,
        /// Its secret.
        secret: Secret,
    },
}

/// A security scheme that tools of the import use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scheme {
    /// Its name in the document, which is the key for its credential.
    pub name: String,
    /// What kind it is, and where the document says it goes.
    pub kind: SchemeKind,
    /// Whether a credential for it was given.
    pub has_credential: bool,
    /// Names for the environment variables its secret values could come from, such as `PET_API_KEY`.
    pub variables: Vec<String>,
}

/// What kind of credential a scheme wants.
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
        /// Where.
        token_url: String,
    },
    /// OAuth 2 or OpenID Connect in a way that needs a person; a token fetched elsewhere can be given.
    OtherToken,
    /// Something that is not understood.
    Unknown(String),
}

impl SchemeKind {
    /// What is needed, in words.
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
            Self::OtherToken => "an access token that was fetched elsewhere, sent as `Authorization: Bearer`".into(),
            Self::Unknown(what) => format!("`{what}`, which is not understood here"),
        }
    }

    fn variables(&self, prefix: &str, scheme: &str) -> Vec<String> {
        let name = |end: &str| {
            let joined =
                [prefix, scheme, end].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
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

/// One scheme a request is signed by, and how.
#[derive(Debug, Clone)]
pub(super) struct Signature {
    pub(super) auth: Auth,
    /// A key in a header, which may stand beside another.
    pub(super) key: Option<(String, Secret)>,
}

/// The schemes of a document and the credentials for them.
pub(super) struct Security<'d> {
    document: Document<'d>,
    schemes: BTreeMap<&'d str, SchemeKind>,
    credentials: &'d BTreeMap<String, Credential>,
}

/// How an operation's requests are to be signed.
#[derive(Debug, Clone, Default)]
pub(super) struct SigningPlan {
    /// The ways the document names; each is a list of schemes that are needed together. None: it says nothing, or nobody is asked.
    pub(super) alternatives: Vec<Vec<String>>,
    /// The signatures of the first way for which everything was given.
    pub(super) signatures: Vec<Signature>,
    /// Whether the document says that this operation asks nobody who they are.
    pub(super) is_public: bool,
}

impl<'d> Security<'d> {
    pub(super) fn new(
        document: Document<'d>,
        credentials: &'d BTreeMap<String, Credential>,
        from: Option<&Url>,
    ) -> Self {
        let listed = document.root.pointer("/components/securitySchemes").and_then(Value::as_object);
        let schemes = listed.into_iter().flatten();
        let schemes = schemes
            .map(|(name, scheme)| (name.as_str(), scheme_kind(document.resolve(scheme).unwrap_or(scheme), from)));
        Self { document, schemes: schemes.collect(), credentials }
    }

    /// Whether each credential that was given has a scheme it fits.
    pub(super) fn check(&self) -> Result<(), ImportError> {
        let wrong = |why| Err(ImportError::Setting { setting: "credentials", why });
        for (name, given) in self.credentials {
            let Some(kind) = self.schemes.get(name.as_str()) else {
                let known: Vec<_> = self.schemes.keys().map(|name| format!("`{name}`")).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                return wrong(format!("the document has no security scheme `{name}`; it has {known}"));
            };
            if let Err(why) = signature(name, kind, given, Vec::new()) {
                return wrong(why);
            }
        }
        Ok(())
    }

    /// What is needed for a scheme.
    pub(super) fn scheme(&self, name: &str, prefix: &str) -> Scheme {
        let kind = self.schemes.get(name).cloned().unwrap_or_else(|| SchemeKind::Unknown(name.to_owned()));
        let variables = kind.variables(prefix, name);
        Scheme { name: name.to_owned(), variables, has_credential: self.credentials.contains_key(name), kind }
    }

    /// How an operation is signed.
    pub(super) fn signing_plan(&self, operation: &'d Value) -> Result<SigningPlan, String> {
        let said = operation.get("security").or_else(|| self.document.root.get("security"));
        let Some(said) = said.and_then(Value::as_array) else {
            return Ok(SigningPlan::default());
        };
        let names = |way: &Value| way.as_object().map(|way| way.keys().cloned().collect()).unwrap_or_default();
        let ways: Vec<Vec<String>> = said.iter().map(names).collect();
        let scopes = |way: usize, scheme: &str| {
            let listed = said.get(way).and_then(|way| way.get(scheme)).and_then(Value::as_array);
            listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let given = |way: &Vec<String>| !way.is_empty() && way.iter().all(|name| self.credentials.contains_key(name));
        let mut signatures = Vec::new();
        if let Some(way) = ways.iter().position(given) {
            for name in &ways[way] {
                let kind =
                    self.schemes.get(name.as_str()).ok_or_else(|| format!("there is no security scheme `{name}`"))?;
                signatures.push(signature(name, kind, &self.credentials[name], scopes(way, name))?);
            }
        }
        let open = ways.iter().all(Vec::is_empty);
        Ok(SigningPlan {
            alternatives: ways.into_iter().filter(|way| !way.is_empty()).collect(),
            signatures,
            is_public: open,
        })
    }
}

/// What a scheme wants. The address for tokens may be relative to where the document was found.
fn scheme_kind(scheme: &Value, from: Option<&Url>) -> SchemeKind {
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
                Some(written) => {
                    let joined = from.and_then(|from| from.join(written).ok());
                    SchemeKind::ClientCredentials { token_url: joined.map_or(written.to_owned(), String::from) }
                }
                None => SchemeKind::OtherToken,
            }
        }
        (Some("openIdConnect"), _) => SchemeKind::OtherToken,
        _ => unknown(),
    }
}

fn signature(name: &str, kind: &SchemeKind, given: &Credential, scopes: Vec<String>) -> Result<Signature, String> {
    let key = |place: KeyLocation, name: &String, key: &Secret| Auth::ApiKey {
        location: place,
        name: name.clone(),
        key: key.clone(),
    };
    let auth = match (kind, given) {
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
            return Err(format!("the credential given for `{name}` does not fit: it wants {}", kind.description()));
        }
    };
    Ok(Signature { auth, key: None })
}
