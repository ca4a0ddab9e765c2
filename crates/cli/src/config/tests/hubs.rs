//! The hub that a config builds.

use std::{sync::Arc, time::Duration};

use toolhub::{BusinessStateConfig, StateManagerConfig, ToolFilter, prelude::*};

use super::{
    super::{StoreHandle, init::Starter, schema, show},
    ConfigFolder, load_config, load_text,
};

#[tokio::test]
async fn a_tool_is_what_its_section_says() {
    let text = r#"
        [defaults]
        timeout = "7s"
        [[limits]]
        tool = "ti*"
        max_concurrency = 3
        [[policy]]
        tool = "jot"
        arguments = { "/add" = "^secret" }
        decision = "deny"
        reason = "no secrets here"
        [tools.time]
        builtin = "clock"
        description = "The hour."
        tags = ["a", "b"]
        category = "time"
        version = "2"
        metadata = { owner = "me", since = 2026-01-31 }
        annotations = { title = "Hours", read_only = false, idempotent = true }
        rate_limit = [{ requests = 5, per = "1m", scope = "thread" }, { requests = 100, per = "1h", wait = "2s" }]
        retry = { attempts = 4, initial = "2s", backoff = "fixed" }
        confirm = false
        [tools.jot]
        builtin = "notes"
        depends_on = { any = ["time"], within = "10m" }
        state = { cleanup = "never", conflict_resolution = "merge" }
        parameters = { properties = { add = { maxLength = 20 } } }
    "#;
    let config = load_config(text);
    let hub = config
        .hub_builder(&config.mcp_servers, true, &StoreHandle::Memory(Arc::new(toolhub::backend::Memory::new())))
        .build()
        .await
        .unwrap();
    let tools = hub.list(&ToolFilter::default());
    let [jot, time] = tools.as_slice() else { panic!("{} tools", tools.len()) };
    let definition = &time.definition;
    assert_eq!(
        (definition.description.as_str(), &definition.metadata.tags[..]),
        ("The hour.", &["a".into(), "b".into()][..])
    );
    assert_eq!(definition.metadata.extra["since"], "2026-01-31");
    let annotations = &definition.annotations;
    assert_eq!(
        (annotations.title.as_deref(), annotations.read_only, annotations.idempotent),
        (Some("Hours"), false, true)
    );
    let limits = time.limits();
    assert_eq!(
        (limits.timeout, limits.max_concurrency, limits.confirm),
        (Duration::from_secs(7), Some(3), Some(false))
    );
    assert_eq!((limits.rate_limits.len(), limits.retry.attempts, limits.retry.factor), (2, 4, 1.0));
    assert_eq!(jot.definition.parameters["properties"]["add"]["maxLength"], 20);
    let too_early = hub.call("jot", json!({"add": "x"})).thread("t").await;
    assert_eq!(too_early.error.unwrap().kind, ErrorKind::DependencyNotMet);
    assert!(hub.call("time", json!({})).thread("t").await.is_success());
    assert!(hub.call("jot", json!({"add": "x"})).thread("t").await.is_success());
    let denied = hub.call("jot", json!({"add": "secret"})).thread("t").await.error.unwrap();
    assert_eq!(denied.kind, ErrorKind::Forbidden);
}

#[test]
fn a_journal_in_memory_is_short_unless_somebody_says_otherwise() {
    let check = |text: &str, hours: u64, shown: &str| {
        let loaded = load_text(text).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(loaded.config.store.call_retention, Duration::from_secs(hours * 3600), "{text}");
        // The displayed value is the effective one.
        assert_eq!(show::masked_values(&loaded)["store"]["retention"]["calls"], shown, "{text}");
    };
    check("", 30 * 24, "30d");
    let audit = |text: &str| load_config(text).store.audit_retention.as_secs() / 86_400;
    assert_eq!((audit(""), audit("[store]\nbackend = \"memory\"")), (90, 1));
    assert_eq!(audit("[store]\nbackend = \"memory\"\nretention = { audit = \"2d\" }"), 2);
    check("[store]\nbackend = \"memory\"", 1, "1h");
    check("[store]\nbackend = \"memory\"\nretention = { events = \"1d\" }", 1, "1h");
    check("[store]\nbackend = \"memory\"\nretention = { calls = \"30d\" }", 30 * 24, "30d");
}

#[tokio::test]
async fn the_pieces_of_a_change_are_the_tools_that_changed_and_all_policies() {
    let old = load_config("[tools.a]\nbuiltin = \"clock\"\n[tools.b]\nbuiltin = \"clock\"");
    let new = load_config(
        "[defaults]\ntimeout = \"1s\"\n[[policy]]\ndecision = \"ask\"\n[[limits]]\ntool = \"*\"\nconfirm = true\n\
         [tools.a]\nbuiltin = \"clock\"\n[tools.c]\nbuiltin = \"clock\"",
    );
    let update = new.hub_update(&old, &new.change_from(&old));
    assert_eq!((update.put.len(), update.remove), (1, vec!["b".to_owned()]));
    assert_eq!((update.rules.len(), update.policies.len()), (1, 1));
    assert_eq!(update.defaults.timeout, Some(Duration::from_secs(1)));
    assert_eq!(update.status, new.status);
}

#[tokio::test]
async fn a_store_on_disk_is_made_with_its_folder_and_the_hub_is_alone_with_it() {
    let folder = ConfigFolder::new();
    folder.write("toolhub.toml", "[store]\npath = \"deep/down/x.db\"\n[tools.notes]\nbuiltin = \"notes\"");
    let config = super::load(&folder.load_options(&[])).unwrap().config;
    for expected in [1, 2] {
        let store = config.store.open().unwrap();
        assert!(config.store.open().is_err(), "a second one is refused");
        let hub = config.hub_builder(&config.mcp_servers, true, &store).build().await.unwrap();
        let outcome = hub.call("notes", json!({"add": "x"})).thread("t").await;
        assert_eq!(outcome.output.as_array().unwrap().len(), expected);
        hub.shutdown(Duration::from_secs(1)).await;
    }
    assert!(folder.path().join("deep/down/x.db").is_file());
}

/// Fails when core gains a state setting that the config lacks.
#[test]
fn every_field_of_the_configs_of_states_is_a_key() {
    let schema = schema::value_schema();
    let keys = schema["$defs"]["State"]["properties"].as_object().unwrap();
    let fields = [
        serde_json::to_value(StateManagerConfig::default()).unwrap(),
        serde_json::to_value(BusinessStateConfig::default()).unwrap(),
    ];
    for field in fields.iter().flat_map(|fields| fields.as_object().unwrap().keys()) {
        assert!(keys.contains_key(field) || field.starts_with("redis_"), "{field} is not a key of [state]");
    }
    let config = load_config("");
    assert_eq!(config.state.manager, StateManagerConfig::default());
    assert_eq!(config.state.business, BusinessStateConfig::default());
    assert_eq!(config.status, toolhub::status::StatusSettings::default());
    assert_eq!(config.policies.defaults, Policy::default());
}

#[tokio::test]
async fn the_starters_are_right_also_with_every_mark_taken_away() {
    for starter in [Starter::Demo, Starter::Empty] {
        let uncommented: String = starter
            .text()
            .lines()
            .map(|line| {
                let content = line.strip_prefix("# ").unwrap_or_default();
                let is_setting =
                    content.starts_with('[') || content.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
                format!("{}\n", if is_setting { content } else { line })
            })
            .collect();
        assert_ne!(uncommented, starter.text());
        for text in [starter.text(), &uncommented] {
            let loaded = load_text(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
            assert_eq!(super::super::dry_run(&loaded, &[]).await, []);
        }
    }
}

#[tokio::test]
async fn everything_that_only_a_hub_finds_is_told_at_once() {
    let text = "[tools.a]\nbuiltin = \"clock\"\nparameters = { type = \"array\" }\n\
                [tools.b]\nbuiltin = \"clock\"\ndepends_on = [\"a\"]\n[tools.c]\ncommand = \"x\"\nkind = \"stateful\"\n\
                parameters = { type = \"object\", properties = { state = {} } }";
    let problems = super::super::dry_run(&load_text(text).unwrap(), &[]).await;
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["tools.a.parameters", "tools.c"]);
}

#[test]
fn a_tool_that_is_wrong_is_not_called_disabled_by_those_that_wait_for_it() {
    let text = "[tools.a]\nbuiltin = \"clokc\"\n[tools.b]\nbuiltin = \"clock\"\ndepends_on = [\"a\"]\n\
                [tools.c]\nurl = \"https://{h}/\"\n[tools.d]\nbuiltin = \"clock\"\ndepends_on = [\"c\"]";
    let problems = load_text(text).map(drop).unwrap_err();
    let keys: Vec<&str> = problems.iter().map(|problem| problem.key.as_str()).collect();
    assert_eq!(keys, ["tools.a.builtin", "tools.c.url"]);
}

#[test]
fn an_agent_with_more_tools_than_many_models_take_is_told_of() {
    let tools: String = (0..129).map(|at| format!("[tools.t{at}]\nbuiltin = \"clock\"\n")).collect();
    let warnings = |llm: &str, more: &str| load_config(&format!("[llm]\n{llm}\n{more}\n{tools}")).warnings.join("\n");
    let openai = "provider = \"openai\"\nmodel = \"m\"\nbase_url = \"http://127.0.0.1:1/v1\"";
    let warning = warnings(openai, "");
    assert!(warning.contains("`default` may be offered 129 tools") && warning.contains("128"), "{warning}");
    assert_eq!(warnings(openai, "[agents.default]\ntoolsets = [\"few\"]\n[toolsets.few]\ntools = [\"t1*\"]"), "");
    assert_eq!(warnings("provider = \"scripted\"", ""), "");
}

#[test]
fn a_tool_that_a_model_cannot_know_how_to_use_is_warned_about() {
    let text = "[tools.a]\ncommand = \"x\"\n[tools.b]\nurl = \"https://example.com/{city}\"\n[tools.c]\nbuiltin = \"clock\"\n\
                [tools.d]\ncommand = \"x\"\ndescription = \"Says x.\"\nparameters = { type = \"object\" }";
    let expected =
        ["[tools.a] has no `description`", "[tools.a] has no `parameters`", "[tools.b] has no `description`"];
    let warnings = load_config(text).warnings;
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, start) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(start), "{warning}");
    }
}
