//! Which of our crates may use a package that is heavy or that a layer must not see.
//!
//! In: the output of `cargo metadata`. Out: one complaint for each use that the table does not allow. Tests and benchmarks may use
//! them; `deny.toml` says which packages nothing may use.

use serde_json::{Value, json};

use super::{assert_none, metadata};

/// A package, and the crates that may depend on it.
const USERS: &[(&str, &[&str])] = &[
    ("axum", &["toolhub-server", "toolhub-agent", "toolhub-cli"]),
    ("clap", &["toolhub-cli"]),
    ("granit-parser", &["toolhub-connect"]),
    ("hyper-util", &["toolhub-net", "toolhub-server"]),
    ("jsonschema", &["toolhub-schema"]),
    ("redis", &["toolhub-store"]),
    ("reqwest", &[]),
    ("rmcp", &["toolhub-connect", "toolhub-server"]),
    ("rusqlite", &["toolhub-store"]),
    ("rustls", &["toolhub-net", "toolhub-store"]),
    ("sse-stream", &["toolhub-connect"]),
    // Types and schemas are plain values.
    (
        "tokio",
        &[
            "toolhub-storage",
            "toolhub-state",
            "toolhub-store",
            "toolhub-core",
            "toolhub-net",
            "toolhub-connect",
            "toolhub-agent",
            "toolhub-server",
            "toolhub-cli",
        ],
    ),
    ("toml", &["toolhub-agent", "toolhub-cli"]),
    ("zstd", &["toolhub-store"]),
];

fn forbidden_uses(metadata: &Value) -> Vec<String> {
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().expect("cargo metadata lists packages") {
        let from = package["name"].as_str().expect("a package has a name");
        if from.starts_with("toolhub-bench") || from == "toolhub-testkit" {
            continue;
        }
        let dependencies = package["dependencies"].as_array().expect("a package lists its dependencies");
        for dependency in dependencies.iter().filter(|dependency| dependency["kind"] != "dev") {
            let row = USERS.iter().find(|(name, _)| dependency["name"] == **name);
            if let Some((name, users)) = row
                && !users.contains(&from)
            {
                complaints.push(format!("{from} may not depend on the package {name}"));
            }
        }
    }
    complaints
}

#[test]
fn heavy_packages_stay_in_the_crates_that_need_them() {
    assert_none(&forbidden_uses(&metadata()));
}

#[test]
fn a_package_in_the_wrong_crate_is_named() {
    let found = |from: &str, to: &str, kind: Option<&str>| {
        let dependencies = json!([{ "name": to, "kind": kind }, { "name": "serde", "kind": null }]);
        forbidden_uses(&json!({ "packages": [{ "name": from, "dependencies": dependencies }] }))
    };
    assert_eq!(found("toolhub-types", "tokio", None), ["toolhub-types may not depend on the package tokio"]);
    assert_eq!(found("toolhub-cli", "reqwest", Some("build")), ["toolhub-cli may not depend on the package reqwest"]);
    assert!(found("toolhub-schema", "jsonschema", None).is_empty());
    assert!(found("toolhub-types", "tokio", Some("dev")).is_empty());
    assert!(found("toolhub-bench-rest", "reqwest", None).is_empty());
}
