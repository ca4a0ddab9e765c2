//! Tools from an OpenAPI document: one for each operation.
//!
//! In: a document of version 3.0 or 3.1, and what its owner says. Out: a plan for each operation, which becomes a tool of the `rest`
//! room; which secrets they need; and a warning for whatever was left out. One bad operation never costs the others.
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

/// What an owner says about an import. `Options::default()` takes every operation as the document has it.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Tools are called `prefix__operation`; without it just `operation`.
    pub prefix: Option<String>,
    /// Patterns over names, as `list*`: only operations that fit one of them become tools. They are held against the `operationId` and
    /// against the name of the tool without its prefix. Empty: all.
    pub include: Vec<String>,
    /// Patterns over names: operations that fit one of them become no tools, also if they were included.
    pub exclude: Vec<String>,
    /// The address of the service, in place of all that the document says about servers.
    pub base_url: Option<String>,
    /// Where the document itself was found; relative addresses in it are joined to that.
    pub document_url: Option<String>,
    /// What is given for the security schemes of the document, by their names there.
    pub credentials: BTreeMap<String, Credential>,
    /// How requests are signed where no credential fits, and the document does not say that nobody is asked.
    pub auth: Option<Auth>,
    /// What the tools' origin calls the document; the prefix where nothing is said, or else the title.
    pub source: Option<String>,
    /// Nobody is asked before calls. Without it, a person is asked before each call of a tool that is not read-only.
    pub trust: bool,
}

/// What a document became.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ImportedDocument {
    /// The title of the document.
    pub title: String,
    /// The version of the service it describes.
    pub version: String,
    /// One for each tool, sorted by path.
    pub plans: Vec<Plan>,
    /// The security schemes the tools use, and whether something was given for them.
    pub schemes: Vec<Scheme>,
    /// What was left out or changed.
    pub warnings: Vec<Warning>,
    /// Operations that `include` and `exclude` left out.
    pub filtered: usize,
}

impl ImportedDocument {
    /// The tools, ready for a hub.
    #[must_use]
    pub fn tools(&self) -> Vec<ToolBuilder> {
        self.plans.iter().map(Plan::tool).collect()
    }

    /// How many operations became no tool because something about them could not be used.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.warnings.iter().filter(|warning| warning.skipped).count()
    }
}

/// Imports a document from its text, JSON or YAML.
///
/// # Errors
/// When the text is no OpenAPI document, or a setting cannot be used. What is wrong with single operations is a warning.
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

/// Imports a document that was read already.
///
/// # Errors
/// As [`import`].
pub fn import_value(document: &Value, options: &Options) -> Result<ImportedDocument, ImportError> {
    operation::import(document, options)
}
