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
    /// Who runs it.
    pub kind: Kind,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema 2020-12 of the arguments; always an object.
    pub parameters: Value,
    /// JSON Schema of the output, where known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output_schema: Option<Value>,
    /// What a call does to the world.
    pub annotations: Annotations,
    /// For finding and grouping.
    pub metadata: Metadata,
    /// What must have succeeded before.
    #[serde(skip_serializing_if = "DependsOn::is_empty", default)]
    pub depends_on: DependsOn,
    /// Where the tool comes from, when it was imported.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub origin: Option<Origin>,
    /// The kind's own settings.
    #[serde(skip_serializing_if = "Value::is_null", default)]
    pub config: Value,
}

/// Fields for finding and grouping tools.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "ToolMetadata")]
pub struct Metadata {
    /// One word for a group of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// Words to filter by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The tool's own version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Anything else the owner wants to keep with it.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// Where an imported tool comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ToolOrigin")]
pub struct Origin {
    /// The server or document it was found in.
    pub source: String,
    /// Its name there.
    pub name: String,
}

impl Definition {
    /// The stable id of a tool of this kind: imported tools are known by where they come from, others by name.
    #[must_use]
    pub fn derive_id(kind: &Kind, name: &ToolName, origin: Option<&Origin>) -> String {
        let (source, name) = origin.map_or(("", name.as_str()), |from| (&from.source, &from.name));
        let hash = digest::sha256_hex([kind.as_str().as_bytes(), source.as_bytes(), name.as_bytes()]);
        format!("tool_{}", &hash[..32])
    }

    /// A fingerprint of all of it. What people allowed for one definition they did not allow for another.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let whole = serde_json::to_value(self).unwrap_or_default();
        digest::hash_json(&whole)
    }
}
