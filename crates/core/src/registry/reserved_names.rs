//! Names that no tool can have: routes of the HTTP API have them, beside `/api/v1/tools/{name}`.

use super::RegistryError;
use toolhub_types::tool::ToolName;

/// The routes beside those of a tool.
const RESERVED_NAMES: [&str; 1] = ["export"];

/// Refuses a reserved name.
pub(super) fn check(name: &ToolName) -> Result<(), RegistryError> {
    if RESERVED_NAMES.contains(&name.as_str()) {
        return Err(RegistryError::ReservedName { name: name.clone(), suggestion: format!("{name}_tool") });
    }
    Ok(())
}
