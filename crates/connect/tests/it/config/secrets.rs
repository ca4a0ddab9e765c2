//! A secret of a config reaches the service or the program, and appears in no text.

use std::path::PathBuf;

use serde_json::json;
use toolhub_connect::config::{ConfigEnv, Diagnostics, KeyPath, ToolConfig, ToolFactory, create_tool};
use toolhub_testkit::TempFolder;

use super::{hub, parse_config, problems};
use crate::{command::expect_output, rest::support::Server};

const CANARY: &str = "canary-4711-0815-and-more-of-it";

/// An environment with the secret in a variable.
struct SecretEnv;

impl ConfigEnv for SecretEnv {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "VAULT_TOKEN").then(|| CANARY.into())
    }

    fn resolve_path(&self, _: &KeyPath, path: &str) -> PathBuf {
        path.into()
    }
}

#[tokio::test]
async fn a_secret_comes_from_a_variable_a_file_or_the_text_and_is_in_no_text_of_ours() {
    let folder = TempFolder::new();
    let file = folder.join("token");
    std::fs::write(&file, format!("  {CANARY}\n")).unwrap();
    let server = Server::echo().await;
    let factory = ToolFactory::new().config_env(SecretEnv);
    for token in [json!({"env": "VAULT_TOKEN"}), json!({"file": file}), json!(CANARY)] {
        let config = parse_config(json!({
            "name": "it", "url": server.url("/"), "allow_hosts": ["127.0.0.1"],
            "auth": {"type": "api_key", "name": "X-Key", "value": token}, "headers": {"X-Session": token, "X-Plain": token},
        }));
        let hub = hub().await;
        hub.register(factory.create_tool(&config).unwrap()).unwrap();
        let outcome = hub.call("it", json!({})).await;
        let seen = server.take_requests().remove(0);
        assert_eq!((seen.header("x-key"), seen.header("x-session")), (CANARY, CANARY));
        let is_set = |key: &KeyPath| [KeyPath::of(["url"])].contains(key);
        let plan =
            factory.plan("it", &config, &KeyPath::default(), &mut Diagnostics::new(&SecretEnv, &is_set)).unwrap();
        let definition = format!("{:?}", hub.list(&toolhub_core::ToolFilter::default())[0].definition);
        let json = serde_json::to_string(&config).unwrap();
        for text in [format!("{config:?}"), format!("{plan:#?}"), definition, json, format!("{outcome:?}")] {
            assert!(!["canary", "4711", "0815"].iter().any(|part| text.contains(part)), "{text}");
        }
        expect_output(outcome);
    }
}

#[test]
fn what_is_wrong_is_told_without_the_secret() {
    let factory = ToolFactory::new().config_env(SecretEnv);
    let found = problems(
        &factory,
        json!({
            "name": "it", "url": format!("https://me:{CANARY}@api.example/"), "token": CANARY,
            "auth": {"type": "basic", "password": {"env": "VAULT_TOKEN"}}, "headers": {"Authorization": format!("{CANARY}\n")},
        }),
    );
    assert!(!found.is_empty() && !format!("{found:?}").contains("canary"), "{found:?}");
}

#[test]
fn what_cannot_be_read_is_told_without_the_secret() {
    for config in [
        json!({"auth": CANARY}),
        json!({"headers": CANARY}),
        json!({"env": CANARY}),
        json!({"env": [CANARY]}),
        json!({"headers": {"x": {"value": CANARY}}}),
        json!({"auth": {"type": "bearer", "token": [CANARY]}}),
    ] {
        let error = serde_json::from_value::<ToolConfig>(config.clone()).unwrap_err().to_string();
        assert!(!error.contains("canary"), "{config}: {error}");
    }
}

#[test]
fn a_variable_that_is_not_set_and_a_file_that_is_not_there_are_told_at_their_keys() {
    let found = problems(
        &ToolFactory::new(),
        json!({
            "name": "it", "command": "tool", "env": {"A": {"env": "NO_SUCH_VARIABLE"}, "B": {"file": "/no/such/file"}},
        }),
    );
    let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["env.A.env", "env.B.file"]);
    assert!(found[0].1.contains("set it before the program starts: NO_SUCH_VARIABLE=…"), "{found:?}");
}

#[tokio::test]
async fn the_environment_of_the_process_is_what_is_asked_where_nothing_is_said() {
    let code = "import json, os\nprint(json.dumps(os.environ['COPY']))";
    let config = parse_config(
        json!({"name": "it", "command": "python3", "args": ["-c", code], "env": {"COPY": {"env": "PATH"}}}),
    );
    let hub = hub().await;
    hub.register(create_tool(&config).unwrap()).unwrap();
    assert_eq!(expect_output(hub.call("it", json!({})).await), std::env::var("PATH").unwrap());
}

#[test]
fn a_file_that_is_too_large_for_a_secret_or_has_several_lines_is_refused_at_its_key() {
    let folder = TempFolder::new();
    let (fitting, large, lines) = (folder.join("fitting"), folder.join("large"), folder.join("lines"));
    std::fs::write(&fitting, "x".repeat(64 * 1024)).unwrap();
    std::fs::write(&large, "x".repeat(64 * 1024 + 1)).unwrap();
    std::fs::write(&lines, format!("{CANARY}\nmore\n")).unwrap();
    let rest =
        |file| json!({"name": "it", "url": "https://a.example", "auth": {"type": "bearer", "token": {"file": file}}});
    let command = |file| json!({"name": "it", "command": "tool", "env": {"A": {"file": file}}});
    let check = |config, expected: &[(&str, &str)]| {
        let found = problems(&ToolFactory::new(), config);
        let is_expected = |((key, text), (expected_key, part)): (&(String, String), &(&str, &str))| {
            key == expected_key && text.contains(part)
        };
        assert!(found.len() == expected.len() && found.iter().zip(expected).all(is_expected), "{found:?}");
        assert!(!format!("{found:?}").contains("canary"), "{found:?}");
    };
    check(rest(&large), &[("auth.token.file", "too large for a secret")]);
    check(command(&large), &[("env.A.file", "too large for a secret")]);
    check(rest(&lines), &[("auth", "line break")]);
    for config in [rest(&fitting), command(&fitting), command(&lines)] {
        create_tool(&parse_config(config)).map(drop).unwrap();
    }
}
