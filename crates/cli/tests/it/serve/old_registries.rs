//! Old registries: the binary loads, converts and reloads them.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use super::{
    connection::HttpConnection,
    mcp_servers::{QUIET, reload, run},
    process::Process,
};
use crate::config::run_toolhub;

const IMPORT: &str = "[imports]\nregistry = [\"configs/tools/__registry__.toml\"]\n";

/// A folder with a copy of a tree.
fn copy_of(tree: &str) -> TempFolder {
    let folder = TempFolder::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_registries").join(tree);
    copy_folder(&root, &root, &folder);
    folder
}

fn copy_folder(from: &Path, root: &Path, to: &TempFolder) {
    for entry in fs::read_dir(from).expect("the folder can be listed") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            copy_folder(&path, root, to);
        } else {
            let name = path.strip_prefix(root).expect("it is inside").to_str().expect("UTF-8").to_owned();
            to.write(&name, &fs::read_to_string(&path).expect("it can be read"));
        }
    }
}

/// A function tool of an old registry.
fn function(name: &str) -> String {
    format!(
        "name = \"{name}\"\ntool_type = \"builtin\"\ndescription = \"d\"\nfunction_path = \"app:{name}\"\n[parameters_schema]\ntype = \"object\"\n"
    )
}

fn names(connection: &mut HttpConnection) -> Vec<String> {
    let listed = connection.send("GET /api/v1/tools", "", "").json();
    let items = listed["items"].as_array().into_iter().flatten();
    items.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect()
}

/// Waits until the server has exactly these tools.
fn wait_for(connection: &mut HttpConnection, expected: &[&str]) {
    for _ in 0..3_000 {
        if names(connection) == expected {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(names(connection), expected);
}

#[test]
fn a_changed_old_registry_is_read_again_with_new_and_removed_files() {
    let folder = TempFolder::new();
    let registry = "[tool_types.builtin]\nconfig_files = [\"a.toml\"]\n[auto_discovery]\nscan_directories = [\"configs/tools/more\"]\n";
    folder.write("configs/tools/__registry__.toml", registry);
    folder.write("configs/tools/a.toml", &function("a"));
    folder.write("configs/tools/more/b.toml", &function("b"));
    folder.write("toolhub.toml", IMPORT);
    let process = Process::start(folder.path(), &["serve", "--port", "0", "--watch"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    assert_eq!(names(connection), ["a", "b"]);
    folder.write("configs/tools/a.toml", &function("changed"));
    wait_for(connection, &["b", "changed"]);
    folder.write("configs/tools/more/c.toml", &function("c"));
    wait_for(connection, &["b", "c", "changed"]);
    fs::remove_file(folder.join("configs/tools/more/b.toml")).expect("it is there");
    wait_for(connection, &["c", "changed"]);
    // A file with a mistake changes nothing, and the next reload says why.
    folder.write("configs/tools/more/c.toml", "name = \"c\"\ntool_type = \"lambda\"\n");
    let refused = connection.send("POST /api/v1/reload", "", "");
    assert!(refused.status == 422 || refused.status == 400, "{}", refused.text);
    assert!(refused.text.contains("configs/tools/more/c.toml:2:13"), "{}", refused.text);
    assert_eq!(names(connection), ["c", "changed"]);
    folder.write("configs/tools/more/c.toml", &function("d"));
    reload(connection);
    assert_eq!(names(connection), ["changed", "d"]);
}

#[test]
fn a_call_of_a_tool_without_its_function_is_refused_until_the_config_has_a_command_for_it() {
    let folder = TempFolder::new();
    folder.write("configs/tools/__registry__.toml", "[tool_types.builtin]\nconfig_files = [\"slug.toml\"]\n");
    folder.write("configs/tools/slug.toml", &function("slug"));
    folder.write("toolhub.toml", IMPORT);
    let process = Process::start(folder.path(), &["serve", "--port", "0"], &QUIET);
    let connection = &mut HttpConnection::connect(process.port);
    let call = |connection: &mut HttpConnection| {
        connection.send("POST /api/v1/tools/slug/calls", "", "{\"arguments\": {\"title\": \"A\"}}")
    };
    let refused = call(connection);
    assert_eq!((refused.status, refused.json()["code"].as_str()), (503, Some("tool_unavailable")), "{}", refused.text);
    assert!(refused.text.contains("no implementation registered for app:slug"), "{}", refused.text);
    let explained = connection.send("GET /api/v1/tools/slug/explain", "", "").text;
    assert!(explained.contains("no implementation registered for app:slug"), "{explained}");
    folder.write(
        "toolhub.toml",
        &format!("{IMPORT}[tools.slug]\ncommand = \"sh\"\nargs = [\"-c\", \"cat > /dev/null; echo 7\"]\n"),
    );
    assert_eq!(reload(connection)["replaced"], json!(["slug"]));
    let done = call(connection);
    assert_eq!((done.status, &done.json()["output"]), (200, &json!(7)), "{}", done.text);
}

#[test]
fn an_old_registry_is_converted_to_a_config_that_passes_its_check() {
    let variables = [("FLIGHTS_API_KEY", "k"), ("CATALOGUE_TOKEN", "k"), ("TOOLHUB__TELEMETRY__LOG__LEVEL", "off")];
    for (tree, tools) in [("first", 6), ("renamed", 5), ("objects", 5)] {
        let folder = copy_of(tree);
        let registry = "configs/tools/__registry__.toml";
        folder.write("toolhub.toml", "# mine\n");
        let printed = run(&folder, &["import", "registry", registry]);
        let dry = run(&folder, &["import", "registry", registry, "--dry-run"]);
        assert_eq!(
            (printed.code, &printed.out, folder.read("toolhub.toml").as_str()),
            (0, &dry.out, "# mine\n"),
            "{}",
            printed.err
        );
        let written = run(&folder, &["import", "registry", registry, "--write"]);
        assert_eq!(written.code, 0, "{}", written.err);
        assert_eq!(folder.read("toolhub.toml"), format!("# mine\n\n{}", printed.out));
        let checked = run_toolhub(folder.path(), &["config", "check"], &variables);
        assert_eq!(checked.code, 0, "{}", checked.err);
        assert!(checked.out.starts_with(&format!("toolhub.toml is valid: {tools} tools,")), "{}", checked.out);
        let again = run(&folder, &["import", "registry", registry, "--write"]);
        assert!(again.code == 2 && again.err.contains("already"), "{}", again.err);
    }
}

#[test]
fn secrets_in_plain_text_become_variables_that_are_named_and_never_printed() {
    let folder = copy_of("traps");
    folder.write("toolhub.toml", "");
    let registry = "configs/tools/__registry__.toml";
    let run_json = run(&folder, &["--json", "import", "registry", registry]);
    let report: Value = serde_json::from_str(&run_json.out).expect("a report");
    let mut variables: Vec<&str> =
        report["variables"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    variables.sort_unstable();
    let expected =
        ["BOTH_TIMES_TOKEN", "KEY_HEADER_API_KEY", "QUERY_KEY_API_KEY", "SECRETS_API_KEY", "SECRETS_X_AUTH_TOKEN"];
    assert_eq!(variables, expected, "{report}");
    let printed = run(&folder, &["import", "registry", registry]);
    let written = run(&folder, &["import", "registry", registry, "--write"]);
    folder.write("other.toml", IMPORT);
    let imported = run(&folder, &["config", "check", "--config", "other.toml"]);
    let shown = run_toolhub(folder.path(), &["config", "show", "--config", "other.toml"], &[("HEADERS_KEY", "k")]);
    let all = [&run_json, &printed, &written, &imported, &shown].map(|ran| format!("{}{}", ran.out, ran.err)).concat();
    assert!(!all.contains("hunter22") && !all.contains("sk-plain"), "{all}");
    assert!(!folder.read("toolhub.toml").contains("hunter22"));
    assert!(
        printed.out.contains("auth = { token = { env = \"SECRETS_API_KEY\" }, type = \"bearer\" }"),
        "{}",
        printed.out
    );
    assert!(printed.err.contains("move these keys to variables"), "{}", printed.err);
    assert!(shown.code == 0 && shown.out.contains("[tools.secrets"), "{}{}", shown.out, shown.err);
}

#[test]
fn a_registry_that_the_config_reads_already_or_that_leads_nowhere_is_not_converted() {
    let folder = copy_of("objects");
    folder.write("toolhub.toml", IMPORT);
    let registry = "configs/tools/__registry__.toml";
    let twice = run(&folder, &["import", "registry", registry, "--write"]);
    assert_eq!((twice.code, folder.read("toolhub.toml").as_str()), (2, IMPORT));
    assert!(twice.err.contains("remove it from `registry` in [imports]"), "{}", twice.err);
    folder.write("toolhub.toml", "");
    folder.write("empty.toml", "[tool_types.rest]\nconfig_files = [\"nowhere.toml\"]\n");
    let empty = run(&folder, &["import", "registry", "empty.toml"]);
    assert!(empty.code == 2 && empty.err.contains("empty.toml:2: nowhere.toml does not exist"), "{}", empty.err);
    let missing = run(&folder, &["import", "registry", "missing.toml"]);
    assert!(missing.code == 2 && missing.err.contains("cannot read missing.toml"), "{}", missing.err);
    let both = run(&folder, &["import", "registry", registry, "--write", "--dry-run"]);
    assert_eq!(both.code, 2, "{}", both.err);
}

#[test]
fn the_guide_on_migration_shows_what_the_converter_makes() {
    let guide = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/migrate.md"))
        .expect("the guide");
    let blocks: Vec<&str> =
        guide.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
    let folder = TempFolder::new();
    let is_file = |block: &&&str| block.starts_with("# configs/");
    for block in blocks.iter().filter(is_file) {
        let (name, text) = block.trim_start_matches("# ").split_once('\n').expect("a name and a text");
        folder.write(name, text);
    }
    let after = blocks.iter().find(|block| block.starts_with("[tools.")).expect("the sections");
    let converted = run(&folder, &["import", "registry", "configs/tools/__registry__.toml"]);
    let lines = |text: &str| {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(lines(&converted.out), lines(after), "{}", converted.err);
    assert!(!converted.out.contains("the key itself"), "{}", converted.out);
}
