//! The definition of a tool: everything about it that can be shown, exported and compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Annotations, DependsOn, Kind, ToolName};
use crate::digest;

/// Everything about a tool that can be shown to a model or a person.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Stable over restarts: a hash of the kind and the origin.
    pub id: String,
    /// The name callers use.
    pub name: ToolName,
    /// The kind, which selects the executor.
    pub kind: Kind,
    /// The description for the model.
    pub description: String,
    /// JSON Schema 2020-12 of the arguments; always an object.
    pub parameters: Value,
    /// JSON Schema of the output, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<Value>,
    /// Hints about the side effects of a call.
    pub annotations: Annotations,
    /// Fields for finding and grouping tools.
    pub metadata: Metadata,
    /// The tools that must have succeeded before.
    #[serde(skip_serializing_if = "DependsOn::is_empty", default)]
    pub depends_on: DependsOn,
    /// The origin of an imported tool.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<Origin>,
    /// Settings specific to the kind.
    #[serde(skip_serializing_if = "Value::is_null", default)]
    pub config: Value,
}

/// Fields for finding and grouping tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ToolMetadata")]
pub struct Metadata {
    /// The name of a group of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Tags to filter by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The tool's own version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Free fields of the owner.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Where an imported tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolOrigin")]
pub struct Origin {
    /// The server or document it was imported from.
    pub source: String,
    /// Its name in that source.
    pub name: String,
}

impl Definition {
    /// The stable id of a tool: a hash of the kind and the origin, or of the kind and the name if the tool is not imported.
    #[must_use]
    pub fn derive_id(kind: &Kind, name: &ToolName, origin: Option<&Origin>) -> String {
        let (source, name) = origin.map_or(("", name.as_str()), |origin| (&origin.source, &origin.name));
        let hash = digest::sha256_hex([kind.as_str().as_bytes(), source.as_bytes(), name.as_bytes()]);
        format!("tool_{}", &hash[..32])
    }

    /// A hash of the whole definition and of the digest of what executes the tool, if there is one. Grants are bound to
    /// it: a grant for one tool is void for a changed one.
    #[must_use]
    pub fn fingerprint(&self, implementation: Option<&str>) -> String {
        let json = serde_json::to_value(self).unwrap_or_default();
        let definition = digest::hash_json(&json);
        match implementation {
            Some(implementation) => digest::sha256_hex([definition.as_bytes(), implementation.as_bytes()]),
            None => definition,
        }
    }
}
