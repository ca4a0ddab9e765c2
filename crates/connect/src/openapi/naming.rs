//! Names: of tools, and of the arguments of one tool.
//!
//! In: what a document calls things. Out: names that every model provider takes, the same ones each time. Two tools never get one
//! name, nor do two arguments of a tool; what each is called in the document stays known beside it.

use std::collections::BTreeSet;

use toolhub_core::ToolName;

/// The longest name of an argument that every provider takes.
const MAX_ARGUMENT_NAME_LEN: usize = 64;

/// What an operation is called: its `operationId`, or else its method and path in words.
pub(super) fn operation_name(operation_id: Option<&str>, method: &str, path: &str) -> String {
    operation_id.map_or_else(|| name_from_path(method, path), str::to_owned)
}

/// `get` and `/pets/{petId}/toys` is `get_pets_petId_toys`.
fn name_from_path(method: &str, path: &str) -> String {
    let mut words = method.to_ascii_lowercase();
    for part in path.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        words.push('_');
        words.push_str(part);
    }
    words
}

/// The names of tools given out so far.
#[derive(Debug, Default)]
pub(super) struct ToolNames(BTreeSet<ToolName>);

impl ToolNames {
    /// A name for an operation, and the name it is known by in its document. Who comes second to a name gets one that also tells
    /// its method and path, so that it does not depend on how many others there are.
    pub(super) fn assign(&mut self, prefix: &str, original: &str, operation: &str) -> Option<(ToolName, String)> {
        let name = ToolName::imported(prefix, original);
        if self.0.insert(name.clone()) {
            return Some((name, original.to_owned()));
        }
        let longer = format!("{original} {operation}");
        let name = ToolName::imported(prefix, &longer);
        self.0.insert(name.clone()).then_some((name, longer))
    }
}

/// The names of arguments given out so far, for one tool.
#[derive(Debug, Default)]
pub(super) struct ArgumentNames(BTreeSet<String>);

impl ArgumentNames {
    /// Whether a name of the document could still become an argument without being told from another one.
    pub(super) fn is_free(&self, name: &str) -> bool {
        !self.0.contains(&sanitize(name))
    }

    /// A name for what the document calls `name`; where that is taken, also the place it goes to.
    pub(super) fn assign(&mut self, name: &str, place: &str) -> String {
        let plain = sanitize(name);
        let with_place = || sanitize(&format!("{plain}_{place}"));
        let numbered = (2..).map(|number| sanitize(&format!("{plain}_{number}")));
        let mut all = std::iter::once(plain.clone()).chain(std::iter::once_with(with_place)).chain(numbered);
        let free = all.find(|name| !self.0.contains(name)).unwrap_or(plain.clone());
        self.0.insert(free.clone());
        free
    }
}

/// Letters, digits and `_`, not beginning with a digit: what every provider takes.
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
        // The end tells long names apart more often than the beginning.
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
        let mut take = |original: &str, operation: &str| names.assign("pet", original, operation).unwrap();
        assert_eq!(take("list", "GET /pets").0.as_str(), "pet__list");
        let (again, known_as) = take("list", "GET /dogs");
        assert!(again.starts_with("pet__list_GET__dogs_"), "{again}");
        assert_eq!(known_as, "list GET /dogs");
        assert!(take("pets/list", "GET /a").0.starts_with("pet__pets_list_"));
        assert_eq!(ToolNames::default().assign("", "list", "GET /").unwrap().0.as_str(), "list");
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
