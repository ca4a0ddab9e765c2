//! Assigns the names of tools and arguments.
//!
//! In: names of a document. Out: names that every model provider accepts, the same at each import. Names of tools are unique, and so are
//! the names of the arguments of a tool; the original names are kept.

use std::collections::{BTreeMap, BTreeSet};

use toolhub_core::ToolName;

/// The longest argument name that every provider accepts.
const MAX_ARGUMENT_NAME_LEN: usize = 64;

/// The name of an operation: its `operationId`, or else one derived from method and path.
pub(super) fn operation_name(operation_id: Option<&str>, method: &str, path: &str) -> String {
    operation_id.map_or_else(|| name_from_path(method, path), str::to_owned)
}

/// `get` and `/pets/{petId}/toys` is `get_pets_petId_toys`.
fn name_from_path(method: &str, path: &str) -> String {
    let mut name = method.to_ascii_lowercase();
    for part in path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        name.push('_');
        name.push_str(part);
    }
    name
}

/// The names of tools assigned so far.
#[derive(Debug, Default)]
pub(super) struct ToolNames {
    assigned: BTreeSet<ToolName>,
    /// The names of all operations of the document, by their legal form.
    originals: BTreeMap<String, BTreeSet<String>>,
}

impl ToolNames {
    /// Names for the operations of a document, given the names of all of them, imported or not: a filter changes no name.
    pub(super) fn new(originals: impl IntoIterator<Item = String>) -> Self {
        let mut names = Self::default();
        for original in originals {
            names.originals.entry(legal_name(&original)).or_default().insert(original);
        }
        names
    }

    /// Assigns a name to an operation; returns it with the original name. If the name is taken, method and path are appended, so that
    /// the result does not depend on the number of other operations.
    pub(super) fn assign(&mut self, prefix: &str, original: &str, operation: &str) -> Option<(ToolName, String)> {
        let name = self.name_of(prefix, original);
        if self.assigned.insert(name.clone()) {
            return Some((name, original.to_owned()));
        }
        let longer = format!("{original} {operation}");
        let name = ToolName::imported(prefix, &longer);
        self.assigned.insert(name.clone()).then_some((name, longer))
    }

    /// The legal form of a name, if no other operation has the same one and it is short enough; or else one with a hash.
    pub(super) fn name_of(&self, prefix: &str, original: &str) -> ToolName {
        let legal = legal_name(original);
        let is_unique = self.originals.get(&legal).is_none_or(|originals| originals.len() == 1) && !legal.is_empty();
        let joined = if prefix.is_empty() { legal } else { format!("{prefix}__{legal}") };
        match ToolName::new(joined) {
            Ok(name) if is_unique => name,
            _ => ToolName::imported(prefix, original),
        }
    }
}

/// A name with what providers do not accept replaced by `_`: `pets/{id}` is `pets_id`. A legal name stays as it is.
fn legal_name(name: &str) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.chars().all(is_legal) {
        return name.to_owned();
    }
    name.split(|c| !is_legal(c)).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_")
}

/// The names of the arguments of one tool assigned so far.
#[derive(Debug, Default)]
pub(super) struct ArgumentNames(BTreeSet<String>);

impl ArgumentNames {
    /// Whether a name of the document can become an argument unchanged.
    pub(super) fn is_free(&self, name: &str) -> bool {
        !self.0.contains(&sanitize(name))
    }

    /// Assigns an argument name; if it is taken, the location is appended, and then a number.
    pub(super) fn assign(&mut self, name: &str, location: &str) -> String {
        let plain = sanitize(name);
        let with_location = || sanitize(&format!("{plain}_{location}"));
        let numbered = (2..).map(|number| sanitize(&format!("{plain}_{number}")));
        let mut candidates = std::iter::once(plain.clone()).chain(std::iter::once_with(with_location)).chain(numbered);
        let free = candidates.find(|name| !self.0.contains(name)).unwrap_or(plain.clone());
        self.0.insert(free.clone());
        free
    }
}

/// Restricts a name to what every provider accepts: letters, digits and `_`, not beginning with a digit.
fn sanitize(name: &str) -> String {
    let mut legal = String::new();
    for part in name.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|part| !part.is_empty()) {
        if !legal.is_empty() {
            legal.push('_');
        }
        legal.push_str(part);
    }
    if legal.is_empty() || legal.starts_with(|c: char| c.is_ascii_digit()) {
        legal.insert(0, '_');
    }
    if legal.len() > MAX_ARGUMENT_NAME_LEN {
        // Long names differ at the end more often than at the beginning.
        legal = format!("_{}", &legal[legal.len() - (MAX_ARGUMENT_NAME_LEN - 1)..]);
    }
    legal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_without_a_name_is_called_by_method_and_path() {
        assert_eq!(operation_name(None, "GET", "/pets/{petId}/toys.json"), "get_pets_petId_toys_json");
        assert_eq!(operation_name(None, "DELETE", "/"), "delete");
        assert_eq!(operation_name(Some("listPets"), "GET", "/pets"), "listPets");
    }

    #[test]
    fn tools_get_legal_names_and_no_two_get_the_same() {
        let mut names = ToolNames::default();
        let mut assign = |original: &str, operation: &str| names.assign("pet", original, operation).unwrap();
        assert_eq!(assign("list", "GET /pets").0.as_str(), "pet__list");
        let (second, original) = assign("list", "GET /dogs");
        assert!(second.starts_with("pet__list_GET__dogs_"), "{second}");
        assert_eq!(original, "list GET /dogs");
        assert_eq!(assign("pets/list", "GET /a").0.as_str(), "pet__pets_list");
        assert_eq!(ToolNames::default().assign("", "list", "GET /").unwrap().0.as_str(), "list");
    }

    #[test]
    fn a_name_gets_a_hash_only_where_two_collide_or_it_is_too_long() {
        let all = ["pets/list", "pets.get", "pets/get", "pets/{id}", "a_b"].map(str::to_owned);
        let long = "x".repeat(80);
        let names = ToolNames::new(all.into_iter().chain([long.clone()]));
        let name_of = |original: &str| names.name_of("", original).to_string();
        assert_eq!(name_of("pets/list"), "pets_list");
        assert_eq!(name_of("pets/{id}"), "pets_id");
        assert_eq!(name_of("a_b"), "a_b");
        assert_ne!(names.name_of("pet", "名").as_str(), "pet__");
        assert!(name_of("pets.get").starts_with("pets_get_") && name_of("pets/get").starts_with("pets_get_"));
        assert_ne!(name_of("pets.get"), name_of("pets/get"));
        assert_eq!(name_of(&long).len(), 64);
    }

    #[test]
    fn arguments_get_names_that_every_provider_takes() {
        let mut names = ArgumentNames::default();
        assert_eq!(names.assign("id", "path"), "id");
        assert_eq!(names.assign("id", "query"), "id_query");
        assert_eq!(names.assign("id", "query"), "id_2");
        assert_eq!(names.assign("X-Request-Id", "header"), "X_Request_Id");
        assert_eq!(names.assign("filter[name]", "query"), "filter_name");
        assert_eq!(names.assign("$top", "query"), "top");
        assert_eq!(names.assign("2fa", "query"), "_2fa");
        assert_eq!(names.assign("名", "query"), "_");
        assert_eq!(names.assign(&"x".repeat(80), "query").len(), 64);
        assert!(!names.is_free("filter.name") && names.is_free("other"));
    }
}
