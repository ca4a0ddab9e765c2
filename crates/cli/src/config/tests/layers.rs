//! Precedence of the layers, and that every key can be set from each of them.

use serde_json::Value;
use toolhub::config::Unit;

use super::{
    super::{
        load,
        shape::{Shape, TextShape},
        show,
        tree::{KeySegment, Path},
    },
    ConfigFolder, LoadOptions, load_config,
};

fn port(options: &LoadOptions) -> (u16, String) {
    let loaded = load(options).unwrap_or_else(|problems| panic!("{problems}"));
    (loaded.config.server.port, show::describe_origin(&loaded, &Path::of(["server", "port"])))
}

#[test]
fn a_flag_weighs_more_than_a_variable_and_that_more_than_a_file() {
    let folder = ConfigFolder::new();
    let mut options = folder.load_options(&[]);
    assert_eq!(port(&options), (8665, "default".into()));
    folder.write("home/.config/toolhub/config.toml", "[server]\nport = 1");
    assert_eq!(port(&options), (1, "home/.config/toolhub/config.toml:2".into()));
    folder.write("toolhub.toml", "\n[server]\nport = 2");
    assert_eq!(port(&options), (2, "toolhub.toml:3".into()));
    folder.write("other.toml", "[server]\nport = 3");
    options = LoadOptions { folder: options.folder, ..folder.load_options(&[("TOOLHUB_CONFIG", "other.toml")]) };
    assert_eq!(port(&options), (3, "other.toml:2".into()));
    options.config = Some("toolhub.toml".into());
    assert_eq!(port(&options), (2, "toolhub.toml:3".into()));
    folder.write("which", "TOOLHUB_CONFIG=other.toml");
    let from_env_file = LoadOptions { env_file: Some("which".into()), ..folder.load_options(&[]) };
    assert_eq!(port(&from_env_file), (3, "other.toml:2".into()));
    folder.write("vars", "# comment\nexport TOOLHUB__SERVER__PORT='4'\n");
    options.env_file = Some("vars".into());
    assert_eq!(port(&options), (4, "env TOOLHUB__SERVER__PORT (vars:2)".into()));
    options.environment = folder.load_options(&[("TOOLHUB__SERVER__PORT", "5")]).environment;
    assert_eq!(port(&options), (5, "env TOOLHUB__SERVER__PORT".into()));
    options.set.push("server.port = 6".into());
    assert_eq!(port(&options), (6, "flag --set server.port".into()));
    options.port = Some(7);
    assert_eq!(port(&options), (7, "flag --port 7".into()));
}

#[test]
fn the_nearest_file_upward_is_read_and_its_paths_begin_there() {
    let folder = ConfigFolder::new();
    folder.write("a/toolhub.toml", "[store]\npath = \"data/x.db\"").write("a/b/c/nothing", "");
    let options = LoadOptions { folder: folder.path().join("a/b/c"), ..folder.load_options(&[]) };
    let loaded = load(&options).unwrap();
    let super::super::Backend::Sqlite { path, .. } = &loaded.config.store.backend else { panic!("not sqlite") };
    assert_eq!(*path, folder.path().join("a/data/x.db"));
    let with_flag = LoadOptions { set: vec!["store.path=y.db".into()], ..options };
    let super::super::Backend::Sqlite { path, .. } = load(&with_flag).unwrap().config.store.backend else {
        panic!("not sqlite")
    };
    assert_eq!(path, folder.path().join("a/b/c/y.db"));
}

#[test]
fn files_join_table_by_table_and_lists_are_replaced() {
    let folder = ConfigFolder::new();
    folder.write(
        "home/.config/toolhub/config.toml",
        "[telemetry]\nredact = [\"a\"]\nmetrics = false\n[tools.mine]\ntimeout = \"5s\"",
    );
    folder.write("toolhub.toml", "[telemetry]\nredact = [\"b\"]\n[tools.mine]\nbuiltin = \"clock\"");
    let loaded = load(&folder.load_options(&[])).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(loaded.config.telemetry.redact, ["b"]);
    assert!(!loaded.config.telemetry.metrics);
    let merged = load_config("[tools.mine]\nbuiltin = \"clock\"\ntimeout = \"5s\"");
    assert_eq!(loaded.config.tools, merged.tools);
}

#[test]
fn a_variable_finds_a_tool_whatever_its_name() {
    let folder = ConfigFolder::new();
    folder.write("toolhub.toml", "[tools.fs__Read-File]\nbuiltin = \"clock\"\n[tools.fs]\nbuiltin = \"clock\"");
    let variables = [
        ("TOOLHUB__TOOLS__FS__READ_FILE__TIMEOUT", "7s"),
        ("TOOLHUB__TOOLS__NEW__BUILTIN", "notes"),
        ("TOOLHUB__LIMITS__0__TOOL", "fs*"),
        ("TOOLHUB__LIMITS__0__TIMEOUT", "9s"),
        ("TOOLHUB__SERVER__ALLOWED_HOSTS", "a.example, b.example"),
        ("TOOLHUB__DEFAULTS__RETRY", "{ attempts = 5 }"),
    ];
    let config = load(&folder.load_options(&variables)).unwrap_or_else(|problems| panic!("{problems}")).config;
    let written = "[tools.fs__Read-File]\nbuiltin = \"clock\"\ntimeout = \"7s\"\n[tools.fs]\nbuiltin = \"clock\"\n\
                   [tools.new]\nbuiltin = \"notes\"";
    assert_eq!(config.tools, load_config(written).tools);
    assert_eq!(config.policies.limits[0].1.timeout, Some(std::time::Duration::from_secs(9)));
    assert_eq!(config.server.allowed_hosts, ["a.example", "b.example"]);
    assert_eq!(config.policies.defaults.retry.unwrap().attempts, 5);
}

/// Every leaf key with a valid value; names and indexes are made up.
fn collect_leaves(shape: &Shape, path: &Path, leaves: &mut Vec<(Path, String)>) {
    match shape {
        Shape::Table(table) => {
            for (name, key) in &table.keys {
                collect_leaves(&key.shape, &path.key(name), leaves);
            }
            if let Some(others) = &table.additional {
                collect_leaves(others, &path.key("made_up"), leaves);
            }
        }
        Shape::List { items, .. } if items.table().is_some() => collect_leaves(items, &path.index(0), leaves),
        Shape::AnyOf(all) => all.iter().for_each(|shape| collect_leaves(shape, path, leaves)),
        other => leaves.push((path.clone(), example_value(other))),
    }
}

fn example_value(shape: &Shape) -> String {
    match shape {
        Shape::Any | Shape::Bool => "true".into(),
        Shape::Integer { min, max } => 3.clamp(*min, *max).to_string(),
        Shape::Number { min, max } => 1.5_f64.clamp(*min, *max).to_string(),
        Shape::Text(TextShape::Plain { .. }) => "some text".into(),
        Shape::Text(TextShape::Datetime) => "2027-01-31".into(),
        Shape::Text(TextShape::Unit(Unit::Size)) => "3MiB".into(),
        Shape::Text(TextShape::Unit(_)) => "3s".into(),
        Shape::Text(TextShape::Choice(allowed)) => allowed[0].clone(),
        Shape::List { items, .. } => example_value(items),
        Shape::Table(_) | Shape::AnyOf(_) => unreachable!("these have leaves of their own"),
    }
}

/// Sets a key by a variable and by a flag; returns both results.
fn set_by_both(path: &Path, value: &str) -> [Result<Value, String>; 2] {
    use super::super::{
        environment::Environment,
        overlay,
        tree::{Node, Origin},
    };
    let shape = Shape::of_config();
    let parts = path.0.iter().map(|segment| match segment {
        KeySegment::Key(key) => key.clone(),
        KeySegment::Index(index) => index.to_string(),
    });
    let parts: Vec<String> = parts.collect();
    let at = |tree: &Node, problems: Vec<super::super::problem::Problem>| match problems.first() {
        Some(problem) => Err(format!("{path}: {}", problem.message)),
        None => tree.get(path).map(Node::to_json).ok_or_else(|| format!("{path} is not set")),
    };
    let (mut by_variable, mut by_flag) = (Node::empty(), Node::empty());
    let name = format!("TOOLHUB__{}", parts.join("__").to_uppercase());
    let environment: Environment = [(name, value.to_owned())].into_iter().collect();
    let problems = overlay::apply_environment(&mut by_variable, &shape, &environment);
    let variable = at(&by_variable, problems);
    let assignment = format!("{}={value}", parts.join("."));
    let problems = overlay::apply_flag(&mut by_flag, &shape, &assignment, &Origin::Flag(String::new()));
    [variable, at(&by_flag, problems)]
}

#[test]
fn every_key_can_be_set_by_a_variable_and_by_a_flag() {
    let mut leaves = Vec::new();
    collect_leaves(&Shape::of_config(), &Path::default(), &mut leaves);
    assert!(leaves.len() > 150, "{} keys", leaves.len());
    for (path, value) in leaves {
        let [variable, flag] = set_by_both(&path, &value);
        assert!(variable.is_ok() && variable == flag, "{variable:?} {flag:?}");
    }
}

#[test]
fn nothing_that_can_be_printed_holds_what_a_file_or_a_variable_says() {
    let folder = ConfigFolder::new();
    folder.write("toolhub.toml", "[tools.x]\nbuiltin = \"clock\"\nmetadata = { a = \"hunter22\" }");
    let options = folder.load_options(&[("ANY", "hunter22")]);
    let loaded = load(&options).unwrap();
    let tree = format!("{:?}", loaded.tree);
    folder.write("toolhub.toml", "# hunter22\n[server]\nprot = 1");
    let problems = load(&options).unwrap_err();
    for text in [format!("{options:?}"), tree, format!("{problems:?}"), problems.to_string()] {
        assert!(!text.is_empty() && !text.contains("hunter22"), "{text}");
    }
}
