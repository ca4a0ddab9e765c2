//! Resolves `[imports]`: the tools of OpenAPI documents.
//!
//! In: the raw section, and the documents. Out: a tool per operation, and warnings about skipped ones. A document that cannot be used
//! is a problem of the config; an operation that cannot be used is a warning.

use std::hash::{DefaultHasher, Hash, Hasher};

use toolhub::{
    ConnectionStateConfig, Retry, ToolBuilder,
    config::{Connection, SecretSource},
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
    retry: Option<Retry>,
    /// The key of its document.
    at: Path,
    /// Hash of everything that defines the tool, including secrets; a plan itself cannot be compared.
    fingerprint: u64,
}

impl PartialEq for Operation {
    fn eq(&self, other: &Self) -> bool {
        self.fingerprint == other.fingerprint
    }
}

/// The operations of all documents, and warnings about skipped ones.
pub(super) fn resolve(raw: &raw::Imports, diagnostics: &mut Diagnostics<'_>) -> (Vec<Operation>, Vec<String>) {
    let (mut operations, mut warnings) = (Vec::new(), Vec::new());
    for (index, document) in raw.openapi.iter().enumerate() {
        let at = Path::of(["imports", "openapi"]).index(index);
        resolve_document(document, &at, diagnostics, &mut operations, &mut warnings);
    }
    (operations, warnings)
}

fn resolve_document(
    raw: &OpenApi,
    at: &Path,
    diagnostics: &mut Diagnostics<'_>,
    operations: &mut Vec<Operation>,
    warnings: &mut Vec<String>,
) {
    let mut hasher = DefaultHasher::new();
    let before = diagnostics.problems().len();
    let auth = raw.auth.as_ref().and_then(|raw| raw.fetch(&at.key("auth"), diagnostics));
    // Secrets print as dots in `Debug`, so they are hashed separately.
    let mut options = Options {
        prefix: raw.prefix.clone(),
        include: raw.include.clone(),
        exclude: raw.exclude.clone(),
        tags: raw.tags.clone(),
        methods: raw.methods.clone(),
        base_url: raw.base_url.clone(),
        document_url: raw.document_url.clone(),
        auth: auth.clone(),
        trust: raw.trust,
        ..Options::default()
    };
    auth.hash(&mut hasher);
    for (name, raw_credential) in &raw.credentials {
        let credential_path = at.key("credentials").key(name);
        if let Some(credential) = resolve_credential(raw_credential, &credential_path, diagnostics, &mut hasher) {
            options.credentials.insert(name.clone(), credential);
        }
    }
    if raw.spec.starts_with("http://") || raw.spec.starts_with("https://") {
        let help = "`toolhub import openapi URL` fetches it once into `specs/` and writes the section";
        return diagnostics.report(&at.key("spec"), "`spec` must be a file, not a URL", help);
    }
    let file = diagnostics.resolve_path(&at.key("spec"), &raw.spec);
    if diagnostics.problems().len() > before {
        return;
    }
    let imported = match openapi::import_file(&file, &options) {
        Ok(imported) => imported,
        Err(ImportError::Setting { setting, reason }) => {
            return diagnostics.report(&at.key(setting), reason, "docs/guide/openapi.md has examples");
        }
        Err(ImportError::File { reason, .. }) => {
            let help = "check the path; it is relative to this file";
            return diagnostics.report(&at.key("spec"), format!("cannot read {}: {reason}", raw.spec), help);
        }
        Err(error) => {
            return diagnostics.report(
                &at.key("spec"),
                error.to_string(),
                "`toolhub import openapi FILE --dry-run` shows what a document contains",
            );
        }
    };
    warnings.extend(imported.warnings.iter().map(|warning| format!("{}: {warning}", raw.spec)));
    let missing = imported.schemes.iter().filter(|scheme| !scheme.has_credential && auth.is_none());
    warnings.extend(missing.map(|scheme| {
        let (name, needed) = (&scheme.name, scheme.kind.description());
        format!("{}: no credentials for `{name}`, which needs {needed}; requests are sent without it", raw.spec)
    }));
    let connection = raw.connection.as_ref().map(ConnectionStateConfig::from).unwrap_or_default();
    let retry = raw.connection.as_ref().and_then(Connection::retry);
    let secrets = hasher.finish();
    for plan in imported.plans {
        let mut plan_hasher = DefaultHasher::new();
        secrets.hash(&mut plan_hasher);
        format!("{plan:?}{connection:?}{retry:?}{:?}", raw.allow_hosts).hash(&mut plan_hasher);
        let (allow_hosts, connection, retry, fingerprint) =
            (raw.allow_hosts.clone(), connection.clone(), retry.clone(), plan_hasher.finish());
        operations.push(Operation { plan, allow_hosts, connection, retry, at: at.clone(), fingerprint });
    }
}

fn resolve_credential(
    raw: &Credential,
    at: &Path,
    diagnostics: &mut Diagnostics<'_>,
    hasher: &mut DefaultHasher,
) -> Option<openapi::Credential> {
    let mut fetch_secret = |key: &str, source: &SecretSource, diagnostics: &mut Diagnostics<'_>| {
        let secret = source.fetch(&at.key(key), diagnostics)?;
        secret.hash(hasher);
        Some(rest::Secret::from(secret))
    };
    match raw {
        Credential { token: Some(token), username: None, password: None, client_id: None, client_secret: None } => {
            fetch_secret("token", token, diagnostics).map(openapi::Credential::Token)
        }
        Credential {
            token: None,
            username: Some(user),
            password: Some(password),
            client_id: None,
            client_secret: None,
        } => {
            let password = fetch_secret("password", password, diagnostics)?;
            Some(openapi::Credential::Password { user: user.clone(), password })
        }
        Credential {
            token: None,
            username: None,
            password: None,
            client_id: Some(id),
            client_secret: Some(secret),
        } => {
            let secret = fetch_secret("client_secret", secret, diagnostics)?;
            Some(openapi::Credential::Client { id: id.clone(), secret })
        }
        _ => {
            let help = "give `token`; or `username` and `password`; or `client_id` and `client_secret`";
            diagnostics.report(at, format!("`{at}` is not a complete credential"), help);
            None
        }
    }
}

impl Operation {
    /// The name of its tool.
    pub(super) fn name(&self) -> &str {
        self.plan.name.as_str()
    }

    /// What makes every call of its tool fail, at the key of its document.
    pub(super) fn obstacles(&self) -> Vec<toolhub::config::Problem> {
        let refused = self.plan.refused_host(&self.allow_hosts).map(|(host, range)| {
            let message = format!("requests to `{host}` are refused, because it is {range}");
            let help = format!("add allow_hosts = [\"{host}\"]");
            toolhub::config::Problem { key: self.at.clone(), message, help }
        });
        refused.into_iter().collect()
    }

    /// The builder of its tool.
    pub(super) fn tool_builder(&self) -> ToolBuilder {
        let mut request = self.plan.request().connection(self.connection.clone());
        if let Some(retry) = &self.retry {
            request = request.retry(retry.clone());
        }
        self.plan.tool_with_request(self.allow_hosts.iter().fold(request, rest::Rest::allow_host))
    }
}
