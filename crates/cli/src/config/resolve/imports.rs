//! What holds for `[imports]`: the tools of OpenAPI documents.
//!
//! In: what is said, and the documents. Out: a tool for each operation, and words for whatever was left out. A document that cannot
//! be used is a problem of the config; an operation that cannot is a word.

use std::hash::{DefaultHasher, Hash, Hasher};

use toolhub::{
    ConnectionStateConfig, ToolBuilder,
    config::{ResolvedAuth, SecretSource},
    openapi::{self, ImportError, Options, Plan},
    rest,
};

use super::{
    super::{
        raw::{self, Credential, OpenApi},
        tree::Path,
    },
    Diagnostics,
};

/// The tool of one operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    plan: Plan,
    allow_hosts: Vec<String>,
    connection: ConnectionStateConfig,
    /// Of all there is to know about it, secrets included: a plan itself cannot be compared.
    fingerprint: u64,
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

/// The operations of all documents, and words about what was left out.
pub(super) fn resolve(said: &raw::Imports, desk: &mut Diagnostics<'_>) -> (Vec<Operation>, Vec<String>) {
    let (mut operations, mut words) = (Vec::new(), Vec::new());
    for (index, document) in said.openapi.iter().enumerate() {
        let at = Path::of(["imports", "openapi"]).index(index);
        resolve_document(document, &at, desk, &mut operations, &mut words);
    }
    (operations, words)
}

fn resolve_document(
    said: &OpenApi,
    at: &Path,
    desk: &mut Diagnostics<'_>,
    operations: &mut Vec<Operation>,
    words: &mut Vec<String>,
) {
    let mut hasher = DefaultHasher::new();
    let before = desk.problems().len();
    let signed = said.auth.as_ref().and_then(|said| said.fetch(&at.key("auth"), desk));
    // Secrets print as dots, so they are hashed apart.
    let mut options = Options {
        prefix: said.prefix.clone(),
        include: said.include.clone(),
        exclude: said.exclude.clone(),
        base_url: said.base_url.clone(),
        document_url: said.document_url.clone(),
        auth: signed.as_ref().map(ResolvedAuth::to_rest),
        trust: said.trust,
        ..Options::default()
    };
    signed.hash(&mut hasher);
    for (name, given) in &said.credentials {
        let place = at.key("credentials").key(name);
        if let Some(credential) = resolve_credential(given, &place, desk, &mut hasher) {
            options.credentials.insert(name.clone(), credential);
        }
    }
    if said.spec.starts_with("http://") || said.spec.starts_with("https://") {
        let help = "`toolhub import openapi ADDRESS` fetches it once, into `specs/`, and writes the section";
        return desk.report(&at.key("spec"), "a config names a file, not an address", help);
    }
    let file = desk.resolve_path(&at.key("spec"), &said.spec);
    if desk.problems().len() > before {
        return;
    }
    let imported = match openapi::import_file(&file, &options) {
        Ok(imported) => imported,
        Err(ImportError::Setting { setting, why }) => {
            return desk.report(&at.key(setting), why, "docs/guide/openapi.md has examples");
        }
        Err(ImportError::File { why, .. }) => {
            let help = "check the path; it begins where this file is";
            return desk.report(&at.key("spec"), format!("{} cannot be read: {why}", said.spec), help);
        }
        Err(error) => {
            return desk.report(
                &at.key("spec"),
                error.to_string(),
                "`toolhub import openapi` shows what a document holds",
            );
        }
    };
    words.extend(imported.warnings.iter().map(|warning| format!("{}: {warning}", said.spec)));
    let missing = imported.schemes.iter().filter(|scheme| !scheme.has_credential && signed.is_none());
    words.extend(missing.map(|scheme| {
        let (name, needed) = (&scheme.name, scheme.kind.description());
        format!("{}: nothing is given for `{name}`, which needs {needed}; requests are sent without it", said.spec)
    }));
    let connection = said.connection.as_ref().map(ConnectionStateConfig::from).unwrap_or_default();
    let secrets = hasher.finish();
    for plan in imported.plans {
        let mut whole = DefaultHasher::new();
        secrets.hash(&mut whole);
        format!("{plan:?}{connection:?}{:?}", said.allow_hosts).hash(&mut whole);
        let (allow_hosts, connection, fingerprint) = (said.allow_hosts.clone(), connection.clone(), whole.finish());
        operations.push(Operation { plan, allow_hosts, connection, fingerprint });
    }
}

fn resolve_credential(
    said: &Credential,
    at: &Path,
    desk: &mut Diagnostics<'_>,
    hasher: &mut DefaultHasher,
) -> Option<openapi::Credential> {
    let mut fetched = |key: &str, given: &SecretSource, desk: &mut Diagnostics<'_>| {
        let found = given.fetch(&at.key(key), desk)?;
        found.hash(hasher);
        Some(rest::Secret::literal(found.reveal()))
    };
    match said {
        Credential { token: Some(token), username: None, password: None, client_id: None, client_secret: None } => {
            fetched("token", token, desk).map(openapi::Credential::Token)
        }
        Credential {
            token: None,
            username: Some(user),
            password: Some(word),
            client_id: None,
            client_secret: None,
        } => {
            let password = fetched("password", word, desk)?;
            Some(openapi::Credential::Password { user: user.clone(), password })
        }
        Credential { token: None, username: None, password: None, client_id: Some(id), client_secret: Some(word) } => {
            let secret = fetched("client_secret", word, desk)?;
            Some(openapi::Credential::Client { id: id.clone(), secret })
        }
        _ => {
            let help = "give `token`; or `username` and `password`; or `client_id` and `client_secret`";
            desk.report(at, format!("`{at}` is no credential"), help);
            None
        }
    }
}

impl Operation {
    /// What its tool is called.
    pub(super) fn name(&self) -> &str {
        self.plan.name.as_str()
    }

    /// The tool.
    pub(super) fn tool_builder(&self) -> ToolBuilder {
        let request = self.plan.request().connection(self.connection.clone());
        self.plan.tool_with_request(self.allow_hosts.iter().fold(request, rest::Rest::allow_host))
    }
}
