//! Every field of the three state configs has its documented effect, or is refused; and the page on them is complete.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use toolhub::{
    BusinessStateConfig, ConnectionStateConfig, ManagerType, StateManagerConfig,
    prelude::*,
    testing::{AssertOutcome, ScriptStep, TestClock, scripted},
};

use crate::architecture::{function_names, rust_files};

/// A field, and the tests that show its effect.
type Field = (&'static str, &'static [&'static str]);

const MANAGER_FIELDS: &[Field] = &[
    (
        "manager_type",
        &[
            "a_session_that_nobody_uses_is_gone_at_once_for_every_reader_and_the_next_one_begins_anew",
            "managers_without_a_factory_or_a_server_are_refused",
            "states_outlive_the_process_in_the_folder_and_the_form_that_the_owner_says",
            "one_tool_may_keep_its_state_elsewhere_and_all_that_share_it_find_it_there",
        ],
    ),
    ("ttl", &["the_managers_own_time_to_live_is_the_default"]),
    ("auto_cleanup", &["without_auto_cleanup_nothing_is_removed_and_nobody_sees_what_has_expired"]),
    ("cleanup_interval", &["what_has_expired_leaves_the_store_as_often_as_the_owner_says"]),
    ("persistence_path", &["states_outlive_the_process_in_the_folder_and_the_form_that_the_owner_says"]),
    (
        "persistence_format",
        &[
            "states_outlive_the_process_in_the_folder_and_the_form_that_the_owner_says",
            "a_file_of_states_is_text_that_people_can_read",
            "pickle_is_refused_with_the_safe_formats",
        ],
    ),
    ("compression", &["states_are_packed_where_either_config_says_so_and_read_back_as_they_were"]),
    ("redis_url", &["states_are_on_the_redis_server_in_the_database_and_under_the_prefix_that_the_owner_says"]),
    ("redis_prefix", &["states_are_on_the_redis_server_in_the_database_and_under_the_prefix_that_the_owner_says"]),
    ("redis_db", &["states_are_on_the_redis_server_in_the_database_and_under_the_prefix_that_the_owner_says"]),
    ("session_isolation", &["threads_may_share_a_context_when_the_owner_says_so"]),
    ("max_states_per_session", &["one_state_more_than_a_session_may_have_is_refused_and_changes_nothing"]),
    ("session_timeout", &["the_timeout_of_a_session_is_the_owners_word"]),
];

const BUSINESS_FIELDS: &[Field] = &[
    ("max_history_size", &["history_tells_what_happened_without_secrets_and_within_its_limit"]),
    ("max_state_size", &["what_is_no_object_or_too_large_is_refused_and_changes_nothing"]),
    ("state_compression", &["states_are_packed_where_either_config_says_so_and_read_back_as_they_were"]),
    ("versioning", &["without_versioning_numbers_stay_and_there_is_nothing_to_go_back_to"]),
    ("max_versions", &["as_many_snapshots_are_kept_as_asked_for"]),
    ("auto_save", &["without_auto_save_only_an_explicit_save_is_committed"]),
    ("sync_interval", &["what_waits_is_written_at_the_interval"]),
    ("sync_on_change", &["written_behind_an_answer_says_so_and_the_end_of_the_hub_writes_what_waits"]),
    (
        "conflict_resolution",
        // For `set` and `update` it is supported: `with_reject_a_write_that_came_second_is_told_so`.
        &["a_tool_that_may_run_again_is_run_again_after_a_conflict", "two_changes_of_different_members_are_merged"],
    ),
    ("backup_enabled", &["backups_are_made_at_the_interval_and_kept_as_long_as_the_owner_says"]),
    ("backup_interval", &["backups_are_made_at_the_interval_and_kept_as_long_as_the_owner_says"]),
    ("backup_retention", &["backups_are_made_at_the_interval_and_kept_as_long_as_the_owner_says"]),
];

const CONNECTION_FIELDS: &[Field] = &[
    ("pool_size", &["as_many_requests_run_at_once_as_the_pool_and_its_overflow_hold_and_the_pool_is_kept"]),
    ("max_overflow", &["as_many_requests_run_at_once_as_the_pool_and_its_overflow_hold_and_the_pool_is_kept"]),
    ("pool_timeout", &["a_call_that_finds_no_connection_free_in_time_is_overloaded"]),
    ("pool_recycle", &["a_connection_that_is_too_old_is_made_anew"]),
    (
        "timeout",
        &["a_service_that_goes_on_and_on_is_given_up", "a_longer_time_for_requests_is_a_longer_time_for_calls"],
    ),
    ("connect_timeout", &["a_service_that_does_not_connect_in_time_is_given_up"]),
    ("read_timeout", &["a_service_that_falls_silent_is_given_up"]),
    ("write_timeout", &["a_service_that_takes_no_bytes_is_given_up"]),
    ("keep_alive", &["connections_are_used_again", "without_keep_alive_every_request_has_a_connection_of_its_own"]),
    ("keep_alive_timeout", &["a_connection_that_nobody_uses_is_closed_after_its_time"]),
    ("keep_alive_interval", &["a_connection_that_is_kept_is_asked_at_the_interval_whether_it_still_works"]),
    (
        "retry_attempts",
        &[
            "the_retry_fields_of_a_connection_are_a_retry_policy",
            "a_request_is_tried_as_often_as_its_connection_says_where_that_is_safe",
        ],
    ),
    ("retry_delay", &["the_retry_fields_of_a_connection_are_a_retry_policy"]),
    ("retry_backoff", &["the_retry_fields_of_a_connection_are_a_retry_policy"]),
    ("retry_jitter", &["the_retry_fields_of_a_connection_are_a_retry_policy"]),
];

/// The three configs: name, coverage of their fields, and their defaults.
fn configs() -> [(&'static str, &'static [Field], Value); 3] {
    let of = |config: Result<Value, serde_json::Error>| config.unwrap();
    [
        ("StateManagerConfig", MANAGER_FIELDS, of(serde_json::to_value(StateManagerConfig::default()))),
        ("BusinessStateConfig", BUSINESS_FIELDS, of(serde_json::to_value(BusinessStateConfig::default()))),
        ("ConnectionStateConfig", CONNECTION_FIELDS, of(serde_json::to_value(ConnectionStateConfig::default()))),
    ]
}

#[test]
fn every_field_of_the_three_configs_has_a_test_that_shows_what_it_does() {
    let sources = rust_files();
    let functions: HashSet<&str> = sources.iter().flat_map(|file| function_names(&file.text)).collect();
    for (config, known, defaults) in configs() {
        let fields: BTreeSet<&str> = defaults.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(known.iter().map(|(field, _)| *field).collect::<BTreeSet<_>>(), fields, "{config}");
        for (field, tests) in known {
            for test in *tests {
                assert!(functions.contains(test), "{config}.{field}: there is no test {test}");
            }
        }
    }
}

#[tokio::test]
async fn managers_without_a_factory_or_a_server_are_refused() {
    let with = |manager| StateManagerConfig { manager_type: Some(manager), ..Default::default() };
    for (manager, missing) in [(ManagerType::Persistent, "manager_type"), (ManagerType::Distributed, "redis_url")] {
        let refused = ToolHub::builder().state_manager(with(manager)).build().await.unwrap_err().to_string();
        assert!(refused.contains(missing), "{refused}");
    }
    let unused = StateManagerConfig { redis_prefix: "mine".into(), ..Default::default() };
    let refused = ToolHub::builder().state_manager(unused).build().await.unwrap_err().to_string();
    assert!(refused.contains("`redis_prefix`") && refused.contains("manager_type = distributed"), "{refused}");
    for manager in [ManagerType::Memory, ManagerType::Session] {
        ToolHub::builder().state_manager(with(manager)).build().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_retry_fields_of_a_connection_are_a_retry_policy() {
    let config_json = json!({"retry_attempts": 4, "retry_delay": 40_000, "retry_backoff": 0.5, "retry_jitter": false});
    let config: ConnectionStateConfig = serde_json::from_value(config_json).unwrap();
    let call = async |config: &ConnectionStateConfig| {
        let down = || ScriptStep::Fail(ToolError::with_kind(ErrorKind::UpstreamUnreachable, "it is down"));
        let (flaky, script) = scripted("flaky", std::iter::repeat_with(down).take(9));
        let tool = flaky.read_only().retry(config.retry()).timeout(Duration::from_secs(3600));
        let hub = ToolHub::builder().clock(TestClock::new()).tool(tool).build().await.unwrap();
        let began = tokio::time::Instant::now();
        hub.call("flaky", json!({})).await.assert_error(ErrorKind::UpstreamUnreachable);
        (script.recorded_arguments().len(), began.elapsed())
    };
    // Waits of 40, 20 and 10 seconds.
    assert_eq!(call(&config).await, (4, Duration::from_secs(70)));
    let (tried, waited) = call(&ConnectionStateConfig { retry_jitter: true, ..config }).await;
    assert_eq!(tried, 4);
    assert!(waited < Duration::from_secs(70), "jitter has not changed the waits: {waited:?}");
    assert_eq!(ConnectionStateConfig::default().retry(), Retry::default());
}

/// The fields and defaults in the page's table under this heading.
fn documented_defaults(page: &str, heading: &str) -> BTreeMap<String, String> {
    let rest = page.split(&format!("## `{heading}`")).nth(1).unwrap_or_else(|| panic!("a table for {heading}"));
    let section = rest.split("\n## ").next().unwrap();
    let cell = |text: &str| text.trim().trim_matches('`').to_owned();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        assert_eq!(cells.len(), 3, "{row}");
        assert!(!cells[2].trim().is_empty(), "{row}");
        (cell(cells[0]), cell(cells[1]))
    })
    .collect()
}

#[test]
fn the_page_on_configs_of_state_has_every_field_with_its_default() {
    let page = include_str!("../../../../docs/state-config.md");
    for (config, _, defaults) in configs() {
        let expected: BTreeMap<String, String> =
            defaults.as_object().unwrap().iter().map(|(field, value)| (field.clone(), value.to_string())).collect();
        assert_eq!(documented_defaults(page, config), expected, "{config}");
    }
}

#[test]
fn a_config_of_connections_may_say_a_little_and_the_rest_is_as_by_default() {
    let parsed: ConnectionStateConfig = serde_json::from_value(json!({"pool_size": 2, "timeout": 250})).unwrap();
    let timeout = Duration::from_millis(250);
    assert_eq!(parsed, ConnectionStateConfig { pool_size: 2, timeout, ..Default::default() });
    assert_eq!(
        serde_json::from_value::<ConnectionStateConfig>(serde_json::to_value(&parsed).unwrap()).unwrap(),
        parsed
    );
}
