//! Differences between two configs.

use super::{super::change::ChangePlan, load_config};

const BASE: &str = "
[server]
port = 1
[defaults]
timeout = \"5s\"
[tools.notes]
builtin = \"notes\"
[tools.clock]
builtin = \"clock\"
";

#[track_caller]
fn check(text: &str, expected: &ChangePlan) {
    assert_eq!(load_config(text).change_from(&load_config(BASE)), *expected, "{text}");
}

#[test]
fn a_config_that_says_the_same_in_another_way_changes_nothing() {
    check(BASE, &ChangePlan::default());
    let moved = "
        tools = { clock = { builtin = \"clock\", kind = \"stateless\", enabled = true }, notes = { builtin = \"notes\" } }
        defaults.timeout = \"5000ms\"
        server = { port = 1, host = \"127.0.0.1\" }";
    check(moved, &ChangePlan::default());
}

#[test]
fn tools_come_change_and_go() {
    let text = BASE.replace("[tools.clock]\nbuiltin = \"clock\"", "[tools.counter]\nbuiltin = \"counter\"");
    let text = text.replace("builtin = \"notes\"", "builtin = \"notes\"\ntimeout = \"9s\"");
    let plan = ChangePlan {
        added: vec!["counter".into()],
        replaced: vec!["notes".into()],
        removed: vec!["clock".into()],
        ..ChangePlan::default()
    };
    check(&text, &plan);
    let disabled = BASE.replace("builtin = \"clock\"", "builtin = \"clock\"\nenabled = false");
    check(&disabled, &ChangePlan { removed: vec!["clock".into()], ..ChangePlan::default() });
}

#[test]
fn policies_and_statuses_change_without_touching_a_tool() {
    let policies = ChangePlan { policies: true, ..ChangePlan::default() };
    check(&BASE.replace("5s", "6s"), &policies);
    check(&format!("{BASE}\n[[policy]]\ndecision = \"ask\""), &policies);
    check(&format!("{BASE}\n[[limits]]\ntool = \"*\"\ntimeout = \"1s\""), &policies);
    let status = ChangePlan { status: true, ..ChangePlan::default() };
    check(&format!("{BASE}\n[status]\nfailure_threshold = 9"), &status);
}

#[test]
fn agents_models_and_toolsets_change_without_a_restart() {
    let agents = ChangePlan { agents: true, ..ChangePlan::default() };
    let llm = "\n[llm]\nprovider = \"scripted\"\n";
    check(&format!("{BASE}{llm}"), &agents);
    check(&format!("{BASE}\n[toolsets.basic]\ntools = [\"notes\"]"), &agents);
    let old = load_config(&format!("{BASE}{llm}"));
    let same = format!("{BASE}{llm}request_timeout = \"120s\"\n[agents.default]\n");
    assert_eq!(load_config(&same).change_from(&old), ChangePlan::default());
    let other = format!("{BASE}{llm}[agents.default]\nmax_steps = 3\n");
    assert_eq!(load_config(&other).change_from(&old), agents);
}

#[test]
fn what_needs_a_restart_is_named_key_by_key() {
    let text = BASE.replace("port = 1", "port = 2\nbody_limit = \"1MiB\"");
    let text =
        format!("{text}\n[store]\nbackend = \"memory\"\n[scheduler]\nmax_concurrency = 4\n[auth]\nmode = \"keys\"");
    let keys = ["auth.mode", "scheduler.max_concurrency", "server.body_limit", "server.port", "store.backend"];
    // The default retention of records depends on the backend.
    let keys = keys.into_iter().chain(["store.retention.audit", "store.retention.calls"]);
    let plan = ChangePlan { needs_restart: keys.map(String::from).collect(), ..ChangePlan::default() };
    check(&text, &plan);
}

#[test]
fn keys_of_clients_change_without_a_restart() {
    let hash = "0".repeat(64);
    let key = format!("\n[[auth.keys]]\nname = \"ci\"\nhash = \"sha256:{hash}\"\nscopes = [\"admin\"]\n");
    let auth = "\n[auth]\nmode = \"local\"\n";
    let new = load_config(&format!("{BASE}{auth}{key}"));
    let old = load_config(&format!("{BASE}{auth}"));
    assert_eq!(new.change_from(&old), ChangePlan { keys: true, ..ChangePlan::default() });
}
