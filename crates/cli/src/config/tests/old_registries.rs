//! Old registries: what they become, loaded and converted, and what is said about them.

mod mistakes;
mod mutants;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use toolhub::{BusinessStateConfig, StateManagerConfig, ToolFilter, prelude::StatusScope};

use super::{
    super::{
        Config, ConvertedRegistry, ExistingVariables, LoadedConfig, Problems, convert_registry, dry_run,
        find_obstacles, load,
    },
    ConfigFolder,
};

const REGISTRY: &str = "configs/tools/__registry__.toml";
const IMPORT: &str = "[imports]\nregistry = [\"configs/tools/__registry__.toml\"]\n";
/// The variables that the trees and their conversions refer to.
const VARIABLES: [(&str, &str); 9] = [
    ("FLIGHTS_API_KEY", "flights"),
    ("CATALOGUE_TOKEN", "catalogue"),
    ("HEADERS_KEY", "headers"),
    ("SECRETS_API_KEY", "hunter22-in-the-file"),
    ("SECRETS_X_AUTH_TOKEN", "hunter22-in-a-header"),
    ("QUERY_KEY_API_KEY", "sk-plain-0123456789"),
    ("KEY_HEADER_API_KEY", "hunter22-for-a-header"),
    ("BOTH_TIMES_TOKEN", "hunter22-as-a-token"),
    ("UNUSED", ""),
];
const TREES: [&str; 4] = ["first", "renamed", "objects", "traps"];

/// A folder with a copy of a tree.
fn copy_of(tree: &str) -> ConfigFolder {
    let folder = ConfigFolder::new();
    for (name, text) in files_of(tree) {
        folder.write(&name, &text);
    }
    folder
}

/// The files of a tree, with their paths in it.
fn files_of(tree: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_registries").join(tree);
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
            files.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    files.sort();
    files
}

fn load_tree(folder: &ConfigFolder) -> Result<LoadedConfig, Problems> {
    folder.write("toolhub.toml", IMPORT);
    load(&folder.load_options(&VARIABLES))
}

fn convert(folder: &ConfigFolder) -> Result<ConvertedRegistry, Problems> {
    convert_registry(&folder.join(REGISTRY), folder.path(), folder.path(), &ExistingVariables::default())
}

/// What the hub of a config knows of each tool.
async fn definitions(config: &Config) -> Vec<Value> {
    let memory = |_: &StateManagerConfig, _: &BusinessStateConfig| {
        Ok::<Arc<dyn toolhub::backend::Backend>, String>(Arc::new(toolhub::backend::Memory::new()))
    };
    let hub = config.offline_builder().state_store_factory(memory).build().await.unwrap();
    let mut described = Vec::new();
    for tool in hub.list(&ToolFilter::default()) {
        let status = hub.tool_status(tool.definition.name.as_str(), StatusScope::Shared).await;
        let reason = status.map(|status| status.reason).unwrap_or_default();
        let limits = format!("{:?}", tool.limits());
        described.push(json!({"definition": tool.definition, "limits": limits, "reason": reason.to_string()}));
    }
    hub.shutdown(Duration::ZERO).await;
    described
}

#[tokio::test]
async fn an_old_registry_gives_equal_definitions_loaded_and_converted() {
    for tree in TREES {
        let folder = copy_of(tree);
        let loaded = load_tree(&folder).unwrap_or_else(|problems| panic!("{tree}: {problems}"));
        let converted = convert(&folder).unwrap_or_else(|problems| panic!("{tree}: {problems}"));
        let other = ConfigFolder::new();
        other.write("toolhub.toml", &converted.text);
        let again =
            load(&other.load_options(&VARIABLES)).unwrap_or_else(|problems| panic!("{problems}{}", converted.text));
        assert_eq!(
            loaded.config.tools.keys().collect::<Vec<_>>(),
            again.config.tools.keys().collect::<Vec<_>>(),
            "{tree}"
        );
        for (name, tool) in &loaded.config.tools {
            // A plan also knows whether a secret is a reference or a literal.
            let is_equal = *tool == again.config.tools[name] || tree == "traps";
            assert!(is_equal, "{tree}: {name}\n{tool:#?}\n{:#?}", again.config.tools[name]);
        }
        assert_eq!(loaded.config.agents, again.config.agents, "{tree}");
        assert_eq!(definitions(&loaded.config).await, definitions(&again.config).await, "{tree}");
        let problems = dry_run(&again, &[]).await;
        assert!(problems.is_empty() && find_obstacles(&again, &[]).is_empty(), "{tree}: {problems:?}");
        assert!(!converted.text.contains("hunter22") && !converted.text.contains("sk-plain"), "{}", converted.text);
        assert!(converted.notes.iter().all(|note| !note.contains("hunter22")), "{:?}", converted.notes);
        assert!(loaded.config.warnings.iter().all(|text| !text.contains("hunter22") && !text.contains("sk-plain")));
    }
}

/// The definition of a tool of a tree.
async fn tool_of(tree: &str, name: &str) -> Value {
    let config = load_tree(&copy_of(tree)).unwrap_or_else(|problems| panic!("{problems}")).config;
    let all = definitions(&config).await;
    all.into_iter().find(|tool| tool["definition"]["name"] == name).unwrap_or_else(|| panic!("{name}"))
}

#[tokio::test]
async fn the_types_of_old_registries_are_kinds_under_their_older_names_too() {
    let kinds = [
        ("first", "miles", "stateless"),
        ("first", "itinerary", "stateful"),
        ("first", "flights", "rest"),
        ("renamed", "isbn", "stateless"),
        ("renamed", "reading_list", "stateful"),
        ("objects", "slug", "stateless"),
        ("objects", "rounding", "stateless"),
        ("objects", "ledger", "stateful"),
        ("objects", "rates", "rest"),
        ("traps", "wrong_kind", "rest"),
    ];
    for (tree, name, kind) in kinds {
        assert_eq!(tool_of(tree, name).await["definition"]["kind"], kind, "{name}");
    }
}

#[tokio::test]
async fn a_tool_whose_function_is_not_here_is_unavailable_and_the_reason_names_it() {
    for (tree, name, function) in [
        ("first", "miles", "travel.functions.miles:between"),
        ("objects", "ledger", "money.ledger.Ledger"),
        ("objects", "slug", "slug"),
        ("renamed", "page", "library.web:page"),
    ] {
        let reason = tool_of(tree, name).await["reason"].to_string();
        assert!(reason.contains(&format!("no implementation registered for {function}")), "{name}: {reason}");
    }
}

#[tokio::test]
async fn keys_after_a_table_are_read_where_they_were_meant() {
    let flights = tool_of("first", "flights").await;
    assert_eq!(flights["definition"]["parameters"]["required"], json!(["start", "end"]));
    assert_eq!(flights["definition"]["parameters"]["properties"].as_object().unwrap().len(), 3);
    let limits = flights["limits"].to_string();
    assert!(
        limits.contains("attempts: 4") && limits.contains("first: 1.5s") && limits.contains("timeout: 15s"),
        "{limits}"
    );
    let weather = tool_of("first", "weather").await;
    assert_eq!(weather["definition"]["parameters"]["required"], json!(["city"]));
    assert_eq!(weather["definition"]["parameters"]["properties"]["city"].get("required"), None);
    let numbers = tool_of("traps", "numbers").await;
    assert_eq!(numbers["definition"]["parameters"]["required"], json!(["a"]));
    assert_eq!(numbers["definition"]["parameters"]["additionalProperties"], false);
    assert_eq!(numbers["definition"]["parameters"]["properties"]["b"], json!({"type": "integer"}));
    let nameless = tool_of("traps", "nameless").await;
    assert_eq!(nameless["definition"]["parameters"]["required"], json!(["list"]));
    assert_eq!(nameless["definition"]["parameters"]["properties"]["object"]["required"], json!(["inner"]));
    let headers = tool_of("traps", "headers").await["limits"].to_string();
    assert!(headers.contains("timeout: 12s") && headers.contains("attempts: 2"), "{headers}");
}

#[tokio::test]
async fn numbers_have_the_unit_of_their_place() {
    for (tree, name, expected) in [
        ("renamed", "catalogue", ["timeout: 60s", "attempts: 4", "first: 2s"]),
        ("traps", "both_times", ["timeout: 60s", "attempts: 3", "first: 1.5s"]),
        ("objects", "rates", ["timeout: 2.5s", "attempts: 3", "first: 250ms"]),
        ("traps", "numbers", ["timeout: 250ms", "attempts: 1", "first: 2s"]),
        ("first", "hotels", ["timeout: 20s", "attempts: 3", "first: 1s"]),
    ] {
        let limits = tool_of(tree, name).await["limits"].to_string();
        assert!(expected.iter().all(|text| limits.contains(text)), "{name}: {limits}");
    }
}

#[tokio::test]
async fn metadata_and_examples_stay_without_their_secrets_and_make_no_rule() {
    let loaded = load_tree(&copy_of("renamed")).unwrap();
    assert!(loaded.config.policies.rules.is_empty());
    let warning = loaded.config.warnings.iter().find(|text| text.contains("[[policy]]")).unwrap();
    assert!(warning.starts_with("configs/tools/rest/loans.toml:21: `risk_level = \"high\"`"), "{warning}");
    assert!(warning.contains("tool = \"loans\""), "{warning}");
    let converted = convert(&copy_of("renamed")).unwrap();
    assert!(converted.text.contains("# [[policy]]\n# tool = \"loans\"\n# decision = \"ask\"\n"), "{}", converted.text);
    let itinerary = tool_of("first", "itinerary").await;
    let metadata = &itinerary["definition"]["metadata"];
    assert_eq!((&metadata["category"], &metadata["tags"]), (&json!("planning"), &json!(["journey"])), "{metadata}");
    assert!(metadata.to_string().contains("Lyon"), "{metadata}");
    let secrets = tool_of("traps", "secrets").await;
    assert!(!secrets.to_string().contains("hunter22"), "{secrets}");
    let slug = tool_of("objects", "slug").await;
    assert!(slug.to_string().contains("${TITLE} is not a variable here"), "{slug}");
}

#[test]
fn each_manager_of_states_has_a_counterpart() {
    for (old, new) in [
        ("memory", "state = { manager_type = \"memory\" }"),
        ("persistent", "state = { manager_type = \"persistent\" }"),
        ("session", "state = { cleanup = \"thread_end\", manager_type = \"persistent\" }"),
        ("distributed", "state = { manager_type = \"distributed\" }"),
    ] {
        let folder = ConfigFolder::new();
        folder.write(REGISTRY, "[tool_types.native]\nconfig_files = [\"a.toml\"]\n");
        let tool = format!("name = \"a\"\ndescription = \"d\"\n[state_config]\nmanager_type = \"{old}\"\n");
        folder.write("configs/tools/a.toml", &tool);
        let converted = convert(&folder).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(converted.text.contains(&format!("{new}\n")), "{}", converted.text);
    }
}

#[test]
fn sets_of_tools_are_toolsets_and_a_file_name_stands_for_its_tool() {
    let config = load_tree(&copy_of("first")).unwrap().config;
    let sets: Vec<(&str, Vec<&str>)> = config
        .agents
        .toolsets
        .iter()
        .map(|(name, set)| (name.as_str(), set.tools.iter().map(String::as_str).collect()))
        .collect();
    let expected = [
        ("everything_else", vec!["hotels", "balloons"]),
        ("planning", vec!["miles", "flights", "itinerary", "booking_query"]),
    ];
    assert_eq!(sets, expected);
}

#[test]
fn every_adjustment_of_an_old_registry_is_told_with_its_file_and_line() {
    let mut said = Vec::new();
    for tree in TREES {
        said.extend(load_tree(&copy_of(tree)).unwrap().config.warnings);
    }
    for expected in [
        "configs/tools/__registry__.toml:12: configs/tools/builtin/visa_rules.toml does not exist; the tool was left out",
        "configs/tools/__registry__.toml:26: configs/tools/rest/trains.toml does not exist",
        "configs/tools/__registry__.toml:52: configs/tools/nowhere does not exist; nothing was searched",
        "configs/tools/__registry__.toml:38: `bookings` in the tool set `planning` is the file of the tool `booking_query`",
        "configs/tools/__registry__.toml:43: the tool set `everything_else` names `balloons`",
        "configs/tools/__registry__.toml:45: the tool set `retired` is disabled",
        "configs/tools/rest/flights.toml:15: `retry_count` in [headers] is read as a key of the tool",
        "configs/tools/rest/flights.toml:5: `timeout = 15` is read as seconds: \"15s\"",
        "configs/tools/rest/flights.toml:16: `retry_delay = 1.5` is read as seconds: \"1s500ms\"",
        "configs/tools/rest/flights.toml:15: `retry_count = 3` is read as retries after the first attempt: attempts = 4",
        "configs/tools/rest/flights.toml:8: `auth_method = \"api_key\"` sends the key as `Authorization: Bearer`",
        "configs/tools/rest/flights.toml:18: tools of the kind `rest` have no state",
        "configs/tools/rest/hotels.toml:10: the arguments are sent as a form",
        "configs/tools/rest/hotels.toml:11: the header `Accept-Encoding` is set by the HTTP client",
        "configs/tools/rest/hotels.toml:17: `requests_per_minute` became a rate limit",
        "configs/tools/mcp/bookings.toml:7: `dynamic_schema`: the schema of the server is used",
        "configs/tools/mcp/bookings.toml:8: `refresh_interval` was left out",
        "configs/tools/builtin/miles.toml:4: `travel.functions.miles:between` cannot be loaded here",
        "configs/tools/__registry__.toml:13: `configs/tools/stateful` does not exist beside this file",
        "configs/tools/rest/catalogue.toml:15: `timeout` in [config.headers] is read as a key of [config]",
        "configs/tools/rest/catalogue.toml:15: `config.timeout = 60000` is read as milliseconds: \"1m\"",
        "configs/tools/rest/catalogue.toml:5: `timeout` was left out, because `config.timeout` overrides it",
        "configs/tools/stateful/reading_list.toml:8: `manager_type = \"session\"`: the state is stored on disk and deleted",
        "configs/tools/stateful/reading_list.toml:14: `max_state_size = 65536` is read as bytes: \"64KiB\"",
        "configs/tools/stateless/isbn.toml:16: `returns_schema` has no counterpart here",
        "configs/tools/builtin/rounding.toml:1: the keys of [tool] are those of the tool",
        "configs/tools/builtin/slug.toml:3: the type `BUILTIN` is the kind `stateless` here",
        "configs/tools/builtin/odd_name.toml:1: the name is not one that models accept",
        "configs/tools/builtin/nameless.toml:1: the file has no name; the tool is named `nameless`",
        "configs/tools/builtin/nameless.toml:4: `timeout = -1` sets no limit",
        "configs/tools/builtin/empty_types.toml:4: `headers` has no counterpart here",
        "configs/tools/native/counter.toml:12: `cleanup_interval` applies to all tools",
        "configs/tools/rest/headers.toml:8: the value of the header `X-Version` became a text",
        "configs/tools/rest/query_key.toml:4: the parameter `api_key` of `api_url` became `auth`",
        "configs/tools/rest/query_key.toml:4: `api_key` looks like a secret",
        "configs/tools/rest/secrets.toml:7: `api_key` looks like a secret; write `${NAME}` instead",
        "configs/tools/rest/secrets.toml:18: this looks like a secret, which clients could read; it was left out",
        "configs/tools/rest/no_address.toml:1: the file has no `api_url` and no [config] with `baseUrl`",
        "configs/tools/rest/defaults.toml:4: a variable with a default is written ${NAME:-default} here",
        "configs/tools/rest/defaults.toml:6: `auth_method = \"oauth\"` cannot be carried over",
        "configs/tools/mcp/off.toml:1: the tool is disabled, because its type is (configs/tools/__registry__.toml:17)",
        "configs/tools/notes.toml:1: configs/tools/notes.toml describes no tool",
        "configs/tools/__registry__.toml:31: configs/tools/list.yaml is not TOML",
        "configs/tools/__registry__.toml:31: more does not exist; nothing was searched",
        "configs/tools/__registry__.toml:35: `limits` has no counterpart here",
    ] {
        assert!(said.iter().any(|text| text.starts_with(expected)), "{expected}\n{}", said.join("\n"));
    }
}
