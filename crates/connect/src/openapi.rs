//! OpenAPI import: one tool per operation of a document.
//!
//! In: a document of version 3.0 or 3.1, and import options. Out: a plan per operation, which becomes a tool of the `rest` module; the
//! credentials they need; and a warning for everything that was omitted. An unusable operation is skipped and never affects the others.
//!
//! ```
//! use toolhub_connect::openapi::{self, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let document = r#"
//! openapi: 3.1.0
//! info: { title: Pets, version: "1" }
//! servers: [{ url: https://pets.example/v1 }]
//! paths:
//!   /pets/{id}:
//!     get:
//!       operationId: showPet
//!       parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
//! "#;
//! let imported = openapi::import(document, &Options { prefix: Some("pet".into()), ..Options::default() })?;
//! assert_eq!(imported.plans[0].name.as_str(), "pet__showPet");
//! assert_eq!(imported.plans[0].operation(), "GET /pets/{id}");
//! let tools = imported.tools();
//! # assert_eq!(tools.len(), 1);
//! # Ok(()) }
//! ```

mod arguments;
mod body;
mod body_assembler;
mod document;
mod error;
mod fetch;
mod keyword;
mod loader;
mod naming;
mod operation;
mod parameter;
mod plan;
mod schema;
mod security;
mod server;
mod yaml;

use std::{collections::BTreeMap, path::Path};

use serde_json::Value;
use toolhub_core::ToolBuilder;

pub use self::{
    arguments::RequestBody,
    body::Format,
    error::{ImportError, Warning},
    fetch::{fetch, import_url},
    loader::{load, parse},
    plan::Plan,
    security::{Credential, Scheme, SchemeKind},
};
use crate::rest::Auth;

/// Options of an import. `Options::default()` imports every operation as it is documented.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Tools are named `prefix__operation`, or just `operation` without a prefix.
    pub prefix: Option<String>,
    /// Globs such as `list*`: only operations that match one of them become tools. Both the `operationId` and the name of the tool
    /// without its prefix are matched. Empty: all operations.
    pub include: Vec<String>,
    /// Globs: operations that match one of them become no tools, even if they are included.
    pub exclude: Vec<String>,
    /// Only operations with one of these tags. Empty: all operations.
    pub tags: Vec<String>,
    /// Only operations with one of these methods, such as `get`. Empty: all operations.
    pub methods: Vec<String>,
    /// The base URL of the service, which overrides all `servers` of the document.
    pub base_url: Option<String>,
    /// The URL of the document itself; relative URLs in it are resolved against that.
    pub document_url: Option<String>,
    /// Credentials for the security schemes of the document, by scheme name.
    pub credentials: BTreeMap<String, Credential>,
    /// Authentication for operations that no credential covers, unless the document marks them as public.
    pub auth: Option<Auth>,
    /// The name of the document in the origin of its tools. Default: the prefix, or else the title.
    pub source: Option<String>,
    /// Trusts the tools. Otherwise each call of a tool that is not read-only needs approval by a person.
    pub trust: bool,
}

/// The result of an import.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportedDocument {
    /// The title of the document.
    pub title: String,
    /// The version of the service it describes.
    pub version: String,
    /// One plan per tool, sorted by path.
    pub plans: Vec<Plan>,
    /// The security schemes that the tools use, and whether there is a credential for each.
    pub schemes: Vec<Scheme>,
    /// What was omitted or changed.
    pub warnings: Vec<Warning>,
    /// Number of operations that `include`, `exclude`, `tags` and `methods` filtered out.
    pub filtered: usize,
}

impl ImportedDocument {
    /// The tools, ready for a hub.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolBuilder> {
        self.plans.iter().map(Plan::tool).collect()
    }

    /// Number of operations that were skipped because they cannot be used.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.warnings.iter().filter(|warning| warning.skipped).count()
    }
}

/// Imports a document from its text, JSON or YAML.
///
/// # Errors
/// When the text is not an OpenAPI document, or an option is invalid. Problems of single operations are warnings.
pub fn import(text: &str, options: &Options) -> Result<ImportedDocument, ImportError> {
    import_value(&parse(text)?, options)
}

/// Imports a document from a file.
///
/// # Errors
/// As [`import`], and when the file cannot be read.
pub fn import_file(file: &Path, options: &Options) -> Result<ImportedDocument, ImportError> {
    import_value(&load(file)?, options)
}

/// Imports a document that is already parsed.
///
/// # Errors
/// As [`import`].
pub fn import_value(document: &Value, options: &Options) -> Result<ImportedDocument, ImportError> {
    operation::import(document, options)
}
