//! Backups of a state manager that has a store of its own, and their restore.

use toolhub_testkit::TempFolder;

use super::{connection::HttpConnection, process::Process};
use crate::config::run_toolhub;

const QUIET: (&str, &str) = ("TOOLHUB__TELEMETRY__LOG__LEVEL", "off");

fn config(format: &str, extra: &str) -> String {
    format!(
        "[server]\nport = 1\n[state]\nmanager_type = \"persistent\"\npersistence_path = \"states\"\n\
         persistence_format = \"{format}\"\n{extra}\n[tools.counter]\nbuiltin = \"counter\"\n"
    )
}

#[test]
fn a_backup_is_restored_only_into_the_store_it_was_made_of() {
    for format in ["sqlite", "json"] {
        let folder = TempFolder::new();
        folder.write("toolhub.toml", &config(format, "sync_on_change = false"));
        let run = |arguments: &[&str]| run_toolhub(folder.path(), arguments, &[QUIET]);
        let count = || run(&["--thread", "t", "call", "counter"]).out.trim().to_owned();
        let calls = || run(&["--json", "calls", "list"]).out.matches("\"counter\"").count();
        assert_eq!(count(), "1");
        let of_states = run(&["backup", "--state"]).out.trim().to_owned();
        let of_hub = run(&["backup"]).out.trim().to_owned();
        assert_eq!(count(), "2");
        for (arguments, command) in [
            (vec!["restore", &of_states], format!("toolhub restore --state {of_states}")),
            (vec!["restore", "--state", &of_hub], format!("toolhub restore {of_hub}")),
        ] {
            let refused = run(&arguments);
            assert_eq!(refused.code, 2, "{format} {arguments:?} {}", refused.err);
            assert!(refused.err.contains("is a backup of") && refused.err.contains(&command), "{}", refused.err);
        }
        assert_eq!((count(), calls()), ("3".to_owned(), 3), "{format}: nothing was replaced");
        let restored = run(&["restore", "--state", &of_states]);
        assert_eq!(restored.code, 0, "{format}: {}", restored.err);
        assert_eq!(
            (count(), calls()),
            ("2".to_owned(), 4),
            "{format}: the states of the backup, and every call record"
        );
        let other = if format == "json" { "sqlite" } else { "json" };
        let refused = run(&["restore", "--state", &of_states, "--set", &format!("state.persistence_format={other}")]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains(&format!("persistence_format = {format}")), "{}", refused.err);
    }
}

#[test]
fn a_server_backs_up_its_states_while_they_are_in_use() {
    let folder = TempFolder::new();
    folder.write("toolhub.toml", &config("json", "backup_enabled = true"));
    let server = Process::start(folder.path(), &["serve", "--port", "0"], &[QUIET]);
    let mut connection = HttpConnection::connect(server.port);
    let call = r#"{"arguments": {}, "threadId": "t"}"#;
    assert_eq!(connection.send("POST /api/v1/tools/counter/calls", "", call).status, 200);
    let backup = connection.send("POST /api/v1/backups?store=state", "", "");
    assert_eq!((backup.status, &backup.json()["store"]), (201, &"state".into()), "{}", backup.text);
    let path = std::path::PathBuf::from(backup.json()["path"].as_str().expect("a path"));
    assert!(path.join("SHA256SUMS").is_file() && path.starts_with(folder.path().join("states/backups")));
    drop(server);
    folder.write("toolhub.toml", "[tools.counter]\nbuiltin = \"counter\"\n");
    let refused = run_toolhub(folder.path(), &["backup", "--state"], &[QUIET]);
    assert!(refused.err.contains("the backup of the hub's store holds all states"), "{}", refused.err);
}
