//! Allowed dependencies between the workspace's crates.
//!
//! In: the output of `cargo metadata`. Out: one complaint for each dependency that the table does not allow.

use serde_json::{Value, json};

use super::{assert_none, metadata};

/// Each crate, and those it may depend on. A crate that is not listed may depend on none of ours, so a new one is
/// noticed.
const ALLOWED_DEPENDENCIES: &[(&str, &[&str])] = &[
    ("toolhub-types", &[]),
    ("toolhub-schema", &["toolhub-types"]),
    ("toolhub-storage", &["toolhub-types"]),
    ("toolhub-state", &["toolhub-types", "toolhub-storage"]),
    ("toolhub-core", &["toolhub-types", "toolhub-schema", "toolhub-storage", "toolhub-state"]),
    ("toolhub-net", &[]),
    ("toolhub-connect", &["toolhub-core", "toolhub-net"]),
    ("toolhub-store", &["toolhub-types", "toolhub-storage"]),
    ("toolhub-agent", &["toolhub-core", "toolhub-net"]),
    ("toolhub-server", &["toolhub-core", "toolhub-agent"]),
    ("toolhub", &["toolhub-core", "toolhub-connect", "toolhub-store", "toolhub-agent", "toolhub-server"]),
    ("toolhub-cli", &["toolhub", "toolhub-net"]),
    ("toolhub-testkit", &[]),
    ("toolhub-bench", &["toolhub"]),
    ("toolhub-bench-agent", &["toolhub"]),
    ("toolhub-bench-command", &["toolhub"]),
    ("toolhub-bench-http", &["toolhub"]),
    ("toolhub-bench-mcp", &["toolhub"]),
    ("toolhub-bench-rest", &["toolhub"]),
    ("toolhub-bench-state", &["toolhub"]),
    ("toolhub-bench-store", &["toolhub"]),
];

fn forbidden_dependencies(metadata: &Value) -> Vec<String> {
    let packages = as_array(&metadata["packages"]);
    let ours: Vec<&str> = packages.iter().map(|package| as_text(&package["name"])).collect();
    let mut complaints = Vec::new();
    for package in packages {
        let from = as_text(&package["name"]);
        for dependency in as_array(&package["dependencies"]) {
            let to = as_text(&dependency["name"]);
            if ours.contains(&to) && !is_allowed(from, to) && !is_testing_only(from, dependency) {
                complaints.push(format!("{from} may not depend on {to} ({})", dependency_kind(dependency)));
            }
        }
    }
    complaints
}

fn is_allowed(from: &str, to: &str) -> bool {
    ALLOWED_DEPENDENCIES.iter().any(|(name, sees)| *name == from && sees.contains(&to))
}

/// The testkit may be used by all tests, and the controlled clock and the scripted tools of the core by the tests of the crates
/// that see the core anyway, directly or through another crate.
fn is_testing_only(from: &str, dependency: &Value) -> bool {
    let to = as_text(&dependency["name"]);
    let testing = as_array(&dependency["features"]).iter().any(|feature| feature == "testing");
    let lends = to == "toolhub-testkit" || (to == "toolhub-core" && testing && sees(from, to));
    lends && dependency_kind(dependency) == "dev"
}

/// Whether a crate depends on another, directly or not.
fn sees(from: &str, to: &str) -> bool {
    is_allowed(from, to) || ALLOWED_DEPENDENCIES.iter().any(|(next, _)| is_allowed(from, next) && sees(next, to))
}

/// Cargo prints no kind for a normal dependency.
fn dependency_kind(dependency: &Value) -> &str {
    dependency["kind"].as_str().unwrap_or("normal")
}

fn as_array(value: &Value) -> &[Value] {
    value.as_array().expect("cargo metadata has a list here")
}

fn as_text(value: &Value) -> &str {
    value.as_str().expect("cargo metadata has a string here")
}

#[test]
fn crates_see_only_the_crates_they_may() {
    assert_none(&forbidden_dependencies(&metadata()));
}

/// One dependency in a made-up workspace with every crate of the table and one more.
#[track_caller]
fn check(from: &str, to: &str, kind: Option<&str>, features: &[&str], complaint: Option<&str>) {
    let packages: Vec<Value> = ALLOWED_DEPENDENCIES
        .iter()
        .map(|(name, _)| *name)
        .chain(["toolhub-new"])
        .map(|name| {
            let outside = json!({ "name": "serde", "kind": null, "features": [] });
            let ours = json!({ "name": to, "kind": kind, "features": features });
            json!({ "name": name, "dependencies": if name == from { vec![outside, ours] } else { vec![outside] } })
        })
        .collect();
    let found = forbidden_dependencies(&json!({ "packages": packages }));
    assert_eq!(found, Vec::from_iter(complaint.map(str::to_owned)));
}

#[test]
fn a_dependency_of_the_table_passes_whatever_its_kind() {
    check("toolhub-server", "toolhub-agent", None, &[], None);
    check("toolhub-cli", "toolhub", Some("dev"), &[], None);
    check("toolhub-bench", "toolhub", Some("build"), &[], None);
}

#[test]
fn a_forbidden_dependency_is_named() {
    let complaint = "toolhub-connect may not depend on toolhub-store (normal)";
    check("toolhub-connect", "toolhub-store", None, &[], Some(complaint));
    let complaint = "toolhub-core may not depend on toolhub (dev)";
    check("toolhub-core", "toolhub", Some("dev"), &["testing"], Some(complaint));
    let complaint = "toolhub-agent may not depend on toolhub-server (build)";
    check("toolhub-agent", "toolhub-server", Some("build"), &[], Some(complaint));
}

#[test]
fn a_crate_missing_from_the_table_sees_none_of_ours() {
    let complaint = "toolhub-new may not depend on toolhub-core (normal)";
    check("toolhub-new", "toolhub-core", None, &[], Some(complaint));
}

#[test]
fn tests_may_use_what_the_core_offers_for_testing_and_no_more() {
    check("toolhub-cli", "toolhub-core", Some("dev"), &["testing"], None);
    let complaint = "toolhub-cli may not depend on toolhub-core (dev)";
    check("toolhub-cli", "toolhub-core", Some("dev"), &[], Some(complaint));
    let complaint = "toolhub-cli may not depend on toolhub-core (normal)";
    check("toolhub-cli", "toolhub-core", None, &["testing"], Some(complaint));
    let complaint = "toolhub-store may not depend on toolhub-core (dev)";
    check("toolhub-store", "toolhub-core", Some("dev"), &["testing"], Some(complaint));
}
