//! Each kind of tool, built from JSON, registered with a running hub, and called.

use std::{path::PathBuf, time::Duration};

use serde_json::json;
use toolhub_connect::{
    command::Guard,
    config::{ConfigEnv, Diagnostics, KeyPath, ProcessEnv, ToolConfig, ToolFactory, create_tool},
};
use toolhub_core::{ErrorKind, Kind, Policy, Retry, StateKind, ToolFilter, ToolHub, ids::Tenant};
use toolhub_testkit::TempFolder;

use super::{factory, hub, parse_config};
use crate::{
    command::expect_output,
    rest::support::{Server, json_ok},
};

#[tokio::test]
async fn a_request_is_made_of_json() {
    let server = Server::new(|seen| json_ok(json!({"now": {"target": seen.target}}))).await;
    let config = parse_config(json!({
        "name": "weather",
        "url": server.url("/v1/{city}"),
        "method": "GET",
        "query": {"units": "{units}"},
        "headers": {"X-From": "toolhub"},
        "auth": {"type": "bearer", "token": "a-token-in-the-config"},
        "result": {"select": "/now/target"},
        "allow_hosts": ["127.0.0.1"],
        "connection": {"pool_size": 1},
        "description": "The weather in a city.",
        "tags": ["sky"],
        "timeout": "5s",
        "retry": {"attempts": 2, "initial": "10ms"},
        "cache": {"ttl": "1m"},
    }));
    let hub = hub().await;
    hub.register(create_tool(&config).unwrap()).unwrap();
    assert_eq!(
        expect_output(hub.call("weather", json!({"city": "Bad Ems", "units": "metric"})).await),
        "/v1/Bad%20Ems?units=metric"
    );
    let seen = server.single_request();
    assert_eq!((seen.header("authorization"), seen.header("x-from")), ("Bearer a-token-in-the-config", "toolhub"));
    let tools = hub.list(&ToolFilter::default());
    let (definition, limits) = (&tools[0].definition, tools[0].limits());
    assert_eq!((&definition.kind, definition.description.as_str()), (&Kind::Rest, "The weather in a city."));
    assert!(definition.annotations.read_only, "a GET is read-only by default");
    // The default parameters are the arguments that templates use.
    assert_eq!(definition.parameters["properties"], json!({"city": {"type": "string"}, "units": {"type": "string"}}));
    assert_eq!((limits.timeout, limits.retry.attempts), (Duration::from_secs(5), 2));
}

#[tokio::test]
async fn a_program_for_each_call_is_made_of_json() {
    let code = "import json, os, sys\narguments = json.load(sys.stdin)['arguments']\n\
                print(json.dumps({'arguments': arguments, 'word': os.environ['WORD'], 'arg': sys.argv[1]}))";
    let config = parse_config(json!({
        "name": "echo", "command": "python3", "args": ["-c", code, "an argument"], "env": {"WORD": "from the config"},
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "annotations": {"read_only": true},
    }));
    let hub = hub().await;
    hub.register(create_tool(&config).unwrap()).unwrap();
    let output = expect_output(hub.call("echo", json!({"n": 7})).await);
    assert_eq!(output, json!({"arguments": {"n": 7}, "word": "from the config", "arg": "an argument"}));
    let refused = hub.call("echo", json!({"n": "x"})).await.error.unwrap();
    assert_eq!(refused.kind, ErrorKind::ArgumentsInvalid);
}

#[tokio::test]
async fn a_program_that_remembers_is_made_of_json() {
    let code = "import json, sys\nfor line in sys.stdin:\n    request = json.loads(line)\n    memory = request['memory']\n    \
                memory['n'] = memory.get('n', 0) + request['arguments']['by']\n    \
                print(json.dumps({'id': request['id'], 'result': memory['n'], 'memory': memory}), flush=True)";
    let config = parse_config(json!({
        "name": "count", "kind": "stateful", "command": "python3", "args": ["-c", code],
        "state": {"parameter_name": "memory", "cleanup": "thread_end", "conflict_resolution": "reject",
                  "ttl": "1h", "max_state_size": "1KiB", "max_versions": 1, "max_history_size": 2},
        "parameters": {"type": "object", "properties": {"by": {"type": "integer"}}},
    }));
    let hub = hub().await;
    hub.register(create_tool(&config).unwrap()).unwrap();
    let count = async |thread: &str, by: u32| expect_output(hub.call("count", json!({"by": by})).thread(thread).await);
    assert_eq!((count("a", 2).await, count("a", 3).await, count("b", 1).await), (json!(2), json!(5), json!(1)));
    // The state has the limits of the config.
    let (state, tenant, context) = (hub.state(), Tenant::default(), "a/count".parse().unwrap());
    let entry = state.get_state(&tenant, &context, StateKind::Business).await.unwrap().unwrap();
    let lifetime = entry.expires.unwrap().since(entry.updated);
    assert!(lifetime > Duration::from_secs(3590) && lifetime <= Duration::from_secs(3600), "{lifetime:?}");
    assert_eq!(state.versions(&tenant, &context).await.unwrap().len(), 1);
    assert_eq!(state.history(&tenant, &context, 100).await.unwrap().len(), 2);
    let large = json!({"text": "x".repeat(1024)});
    assert!(state.set_state(&tenant, &context, StateKind::Business, large, None).await.is_err());
    hub.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_function_of_the_program_is_made_of_json_under_any_name() {
    let hub = hub().await;
    let first = parse_config(
        json!({"name": "loud", "builtin": "shout", "description": "Says it louder.", "cache": {"ttl": "1m"}}),
    );
    let second =
        parse_config(json!({"name": "louder", "kind": "stateless", "builtin": "shout", "depends_on": ["loud"]}));
    hub.register_all([&first, &second].map(|config| factory().create_tool(config).unwrap())).unwrap();
    let early = hub.call("louder", json!({"text": "hello"})).thread("t").await.error.unwrap();
    assert_eq!(early.kind, ErrorKind::DependencyNotMet);
    assert_eq!(expect_output(hub.call("loud", json!({"text": "hello"})).thread("t").await), "HELLO");
    assert_eq!(expect_output(hub.call("louder", json!({"text": "hello"})).thread("t").await), "HELLO");
}

#[tokio::test]
async fn a_function_path_is_bound_to_the_function_of_the_tools_name_or_leaves_the_tool_unavailable() {
    let path = "app.words:shout";
    let config =
        |name: &str| parse_config(json!({"name": name, "function_path": path, "description": "Says it louder."}));
    let hub = hub().await;
    let stateful = json!({"name": "counter", "kind": "stateful", "function_path": path, "state": {"ttl": "1h"}});
    hub.register(factory().create_tool(&config("shout")).unwrap()).unwrap();
    hub.register(factory().create_tool(&config("whisper")).unwrap()).unwrap();
    hub.register(factory().create_tool(&parse_config(stateful)).unwrap()).unwrap();
    assert_eq!(expect_output(hub.call("shout", json!({"text": "hello"})).await), "HELLO");
    for name in ["whisper", "counter"] {
        let refused = hub.call(name, json!({"text": "hello"})).thread("t").await.error.unwrap();
        assert_eq!(refused.kind, ErrorKind::ToolUnavailable);
        assert!(refused.operator.contains("no implementation registered for app.words:shout"), "{}", refused.operator);
    }
    assert_eq!(hub.get("counter").unwrap().definition.kind.as_str(), "stateful");
    // Functions that have nothing to do with the older program are not used for it.
    hub.unregister("shout").await.unwrap();
    hub.register(factory().unbound_function_paths().create_tool(&config("shout")).unwrap()).unwrap();
    let refused = hub.call("shout", json!({"text": "hello"})).await.error.unwrap();
    assert_eq!(refused.kind, ErrorKind::ToolUnavailable);
    // Whatever else executes it makes the path a mere note.
    let program = json!({"name": "cat", "function_path": path, "command": "cat", "parameters": {"type": "object"}});
    hub.register(factory().create_tool(&parse_config(program)).unwrap()).unwrap();
    assert!(hub.call("cat", json!({})).await.is_success());
    let kind = json!({"name": "shout", "kind": "stateful", "function_path": path});
    let found = super::problems(&factory(), kind);
    assert!(found[0].1.contains("the function `shout` has kind stateless, not stateful"), "{found:?}");
}

/// An environment whose base directory is not the working directory of the process.
struct TempDirEnv(PathBuf);

impl ConfigEnv for TempDirEnv {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "WORD").then(|| "a word of its own".into())
    }

    fn resolve_path(&self, _: &KeyPath, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

#[tokio::test]
async fn variables_and_paths_are_those_of_the_ground_that_a_program_gives() {
    let folder = TempFolder::new();
    std::fs::write(folder.join("tool.py"), "import json, os\nprint(json.dumps([os.environ['WORD'], os.getcwd()]))")
        .unwrap();
    let config = parse_config(
        json!({"name": "it", "command": "python3", "args": ["tool.py"], "env": {"WORD": {"env": "WORD"}}}),
    );
    let factory = ToolFactory::new().config_env(TempDirEnv(folder.join("")));
    let hub = hub().await;
    hub.register(factory.create_tool(&config).unwrap()).unwrap();
    let cwd = folder.join("").canonicalize().unwrap();
    assert_eq!(expect_output(hub.call("it", json!({})).await), json!(["a word of its own", cwd]));
}

#[tokio::test]
async fn programs_run_below_the_guard_of_the_factory() {
    let config = parse_config(json!({"name": "it", "command": "true"}));
    let factory = ToolFactory::new().guard(Guard::program("/no/such/guard"));
    let hub = hub().await;
    hub.register(factory.create_tool(&config).unwrap()).unwrap();
    let error = hub.call("it", json!({})).await.error.unwrap();
    assert!(error.operator.contains("/no/such/guard"), "{}", error.operator);
}

#[test]
fn what_is_written_again_says_the_same() {
    let config = parse_config(json!({
        "name": "it", "command": "tool", "kind": "stateful", "depends_on": {"any": ["a"], "within": "1h30m"}, "grace": "0s",
        "max_output": "1MiB", "rate_limit": [{"requests": 3, "per": "1m"}], "state": {"manager_type": "memory"},
        "env": {"A": {"file": "secret"}}, "metadata": {"owner": "me"},
    }));
    let reparsed: ToolConfig = serde_json::from_str(&serde_json::to_string(&config).unwrap()).unwrap();
    assert_eq!(reparsed, config);
}

#[test]
fn two_plans_are_equal_when_their_tools_would_be() {
    let folder = TempFolder::new();
    let secret = folder.join("token");
    let config = parse_config(json!({
        "url": "https://api.example/", "auth": {"type": "bearer", "token": {"file": secret}}, "tags": ["a"],
    }));
    let plan = |config: &ToolConfig| {
        let mut diagnostics = Diagnostics::new(&ProcessEnv, &|key| *key == KeyPath::of(["url"]));
        let plan = factory().plan("it", config, &KeyPath::default(), &mut diagnostics);
        assert_eq!(diagnostics.into_problems(), []);
        plan.unwrap()
    };
    std::fs::write(&secret, "one").unwrap();
    let first = plan(&config);
    assert_eq!(plan(&config), first);
    assert_ne!(plan(&ToolConfig { tags: vec!["b".into()], ..config.clone() }), first);
    std::fs::write(&secret, "two").unwrap();
    assert_ne!(plan(&config), first, "a changed secret changes the plan");
}

#[tokio::test]
async fn retries_that_a_connection_sets_hold_even_if_they_are_the_default() {
    let once = Policy { retry: Some(Retry { attempts: 1, ..Retry::default() }), ..Policy::default() };
    for (connection, attempts) in [
        (json!({"retry_attempts": 3, "retry_delay": "1s"}), 3),
        (json!({"retry_jitter": true}), 3),
        (json!({"retry_attempts": 2}), 2),
        (json!({"pool_size": 4}), 1),
    ] {
        let config = parse_config(json!({
            "name": "weather", "url": "https://api.example/", "description": "The weather.", "connection": connection,
        }));
        let hub = ToolHub::builder().default_policy(once.clone()).build().await.unwrap();
        hub.register(create_tool(&config).unwrap()).unwrap();
        assert_eq!(hub.get("weather").unwrap().limits().retry.attempts, attempts, "{connection}");
    }
}
