//! Mistakes in old registries, each told at its place.

use std::os::unix::fs::symlink;

use super::{super::ConfigFolder, REGISTRY, convert, load_tree};

const TOOL: &str = "tool_type = \"stateless\"\nfunction_path = \"app:run\"\ndescription = \"d\"\n[parameters_schema]\ntype = \"object\"\n";

/// A registry with these lines, and the tools `a` and `b`.
fn folder_with(lines: &str) -> ConfigFolder {
    let folder = ConfigFolder::new();
    folder.write(REGISTRY, lines);
    for name in ["a", "b"] {
        folder.write(&format!("configs/tools/{name}.toml"), &format!("name = \"{name}\"\n{TOOL}"));
    }
    folder
}

/// Loading and converting say the same about a mistake.
#[track_caller]
fn check(folder: &ConfigFolder, place: &str, message: &str, help: &str) {
    let loaded = load_tree(folder).expect_err("there is a mistake");
    let converted = convert(folder).err().expect("there is a mistake");
    for problems in [loaded, converted] {
        let text = problems.to_string();
        assert!(text.contains(&format!("--> {place}")), "{place}\n{text}");
        assert!(text.contains(message) && text.contains(help), "{message}\n{help}\n{text}");
    }
}

#[test]
fn two_tools_of_one_name_are_told_with_both_places() {
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\", \"b.toml\"]\n");
    folder.write("configs/tools/b.toml", &format!("name = \"a\"\n{TOOL}"));
    check(
        &folder,
        "configs/tools/b.toml:1:1",
        "there are two tools named `a`: the other is at configs/tools/a.toml:1",
        "rename one of them",
    );
}

#[test]
fn a_tool_that_the_config_executes_too_is_told_and_one_that_it_only_adds_to_is_not() {
    let folder = folder_with("[tool_types.rest]\nconfig_files = [\"r.toml\", \"a.toml\"]\n");
    let tool = "name = \"r\"\ntool_type = \"rest\"\ndescription = \"d\"\nmethod = \"GET\"\napi_url = \"https://api.example.com\"\n";
    folder.write("configs/tools/r.toml", tool);
    let load = |more: &str| {
        folder.write("toolhub.toml", &format!("[imports]\nregistry = [\"configs/tools/__registry__.toml\"]\n{more}"));
        super::load(&folder.load_options(&[]))
    };
    let problems =
        load("[tools.r]\nurl = \"https://other.example.com\"\n").expect_err("both have an address").to_string();
    assert!(problems.contains("there are two tools named `r`: the other is at configs/tools/r.toml:1"), "{problems}");
    let more = "[tools.r]\ntimeout = \"3s\"\nallow_hosts = [\"api.example.com\"]\n[tools.a]\ncommand = \"cat\"\n";
    let config = load(more).unwrap_or_else(|problems| panic!("{problems}")).config;
    let shown = format!("{:?}", config.tools);
    assert!(shown.contains("timeout: Some(3s)") && shown.contains("Command("), "{shown}");
}

#[test]
fn a_number_of_unknown_unit_is_reported_with_both_readings() {
    for (lines, place, path) in [
        ("[rest_config]\ntimeout = 30\n", "configs/tools/a.toml:8:11", "rest_config.timeout = 30"),
        ("[config]\nretry_delay = 30\n", "configs/tools/a.toml:8:15", "config.retry_delay = 30"),
        (
            "[metadata.customFields]\ncache_ttl = 30\n",
            "configs/tools/a.toml:8:13",
            "metadata.customFields.cache_ttl = 30",
        ),
    ] {
        let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\"]\n");
        folder.write("configs/tools/a.toml", &format!("name = \"a\"\n{TOOL}{lines}"));
        let message = format!("`{path}` has no unit, and nothing says which one is meant");
        check(&folder, place, &message, "if it is 30 seconds, write \"30s\"; if it is 30 milliseconds, write \"30ms\"");
    }
    // A name may say the unit.
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\"]\n");
    folder.write("configs/tools/a.toml", &format!("name = \"a\"\n{TOOL}[config]\npoll_interval_ms = 30\n"));
    let warnings = load_tree(&folder).unwrap_or_else(|problems| panic!("{problems}")).config.warnings.join("\n");
    assert!(warnings.contains("configs/tools/a.toml:8: `config.poll_interval_ms` has no counterpart"), "{warnings}");
}

#[test]
fn a_link_out_of_the_project_is_not_followed() {
    let outside = ConfigFolder::new();
    outside.write("secret.toml", &format!("name = \"outside\"\n{TOOL}"));
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\", \"link.toml\"]\n");
    symlink(outside.join("secret.toml"), folder.join("configs/tools/link.toml")).unwrap();
    check(
        &folder,
        "configs/tools/__registry__.toml:2:27",
        "configs/tools/link.toml leads out of the project",
        "copy it into",
    );
    let folder = folder_with("[auto_discovery]\nscan_directories = [\"configs/tools\"]\n");
    symlink(outside.path(), folder.join("configs/tools/linked")).unwrap();
    check(
        &folder,
        "configs/tools/__registry__.toml:2:21",
        "configs/tools/linked leads out of the project",
        "copy it into",
    );
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"../../../../../../../../../../etc/passwd\"]\n");
    check(&folder, "configs/tools/__registry__.toml:2:17", "leads out of the project", "copy it into");
}

#[test]
fn discovery_that_goes_round_in_circles_is_told_with_its_way() {
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\", \"__registry__.toml\"]\n");
    check(
        &folder,
        "configs/tools/__registry__.toml:2:27",
        "cycle of discovery: configs/tools/__registry__.toml → configs/tools/__registry__.toml",
        "name only folders and files of tools",
    );
    let folder = folder_with("[auto_discovery]\nscan_directories = [\"configs/tools\"]\n");
    folder.write("configs/tools/inner/__registry__.toml", "[auto_discovery]\nscan_directories = [\"configs/tools\"]\n");
    check(
        &folder,
        "configs/tools/inner/__registry__.toml:2:21",
        "cycle of discovery: configs/tools/__registry__.toml → configs/tools/inner/__registry__.toml → \
         configs/tools/__registry__.toml",
        "exclude_patterns",
    );
    let folder = folder_with("[auto_discovery]\nscan_directories = [\"configs/tools\"]\n");
    symlink(folder.join("configs/tools"), folder.join("configs/tools/again")).unwrap();
    check(
        &folder,
        "configs/tools/__registry__.toml:2:21",
        "configs/tools is inside itself, by a link",
        "remove the link",
    );
}

#[test]
fn a_secret_in_the_path_of_an_address_is_converted_but_not_loaded() {
    let folder = folder_with("[tool_types.rest]\nconfig_files = [\"a.toml\"]\n");
    let url = "https://hooks.example.com/services/ghp_0123456789abcdefghij";
    let tool =
        format!("name = \"a\"\ntool_type = \"rest\"\ndescription = \"d\"\nmethod = \"POST\"\napi_url = \"{url}\"\n");
    folder.write("configs/tools/a.toml", &tool);
    let problems = load_tree(&folder).expect_err("it would be shown").to_string();
    assert!(
        problems.contains("--> configs/tools/a.toml:5\n") && problems.contains("`api_url` contains a secret"),
        "{problems}"
    );
    let converted = convert(&folder).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(converted.text.contains("url = \"https://hooks.example.com/${A_SECRET_URL}\""), "{}", converted.text);
    assert!(!problems.contains("ghp_"), "{problems}");
    assert!(!converted.text.contains("ghp_") && converted.variables == ["A_SECRET_URL"], "{}", converted.text);
}

#[test]
fn secrets_in_descriptions_and_function_paths_are_left_out_and_never_printed() {
    let folder = folder_with("[tool_types.stateless]\nconfig_files = [\"a.toml\"]\n");
    let secret = "ghp_0123456789abcdefghij";
    folder.write(
        "configs/tools/a.toml",
        &format!(
            "name = \"a\"\ntool_type = \"stateless\"\ndescription = \"use {secret}\"\nfunction_path = \"a.b:make?token={secret}\"\n"
        ),
    );
    let loaded = load_tree(&folder).unwrap_or_else(|problems| panic!("{problems}"));
    let converted = convert(&folder).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(!format!("{:?}", loaded.config).contains("ghp_") && !converted.text.contains("ghp_"), "{}", converted.text);
    let warnings: Vec<String> = loaded.config.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|warning| warning.contains("looks like a secret")), "{warnings:?}");
    assert!(warnings.iter().all(|warning| !warning.contains("ghp_")), "{warnings:?}");
}

#[test]
fn an_unknown_type_and_an_unknown_manager_are_told_with_what_exists() {
    let folder = folder_with("[tool_types.builtins]\nconfig_files = [\"a.toml\"]\n");
    check(
        &folder,
        "configs/tools/__registry__.toml:1:13",
        "no type of tools named `builtins`",
        "did you mean \"builtin\"?",
    );
    let folder = folder_with("[tool_types.builtin]\nconfig_files = [\"a.toml\"]\n");
    folder.write("configs/tools/a.toml", "name = \"a\"\ntool_type = \"lambda\"\n");
    check(&folder, "configs/tools/a.toml:2:13", "no type of tools named `lambda`", "use one of: builtin, stateless");
    folder.write(
        "configs/tools/a.toml",
        "name = \"a\"\ntool_type = \"native\"\n[state_config]\nmanager_type = \"cloud\"\n",
    );
    check(&folder, "configs/tools/a.toml:4:16", "there is no `manager_type` of this name", "use memory, persistent");
    folder.write("configs/tools/a.toml", "name = \"a\"\ntool_type = \"native\"\nretry_count = \"often\"\n");
    check(&folder, "configs/tools/a.toml:3:15", "`retry_count` must be a number of retries", "whole number");
}

#[test]
fn what_is_wrong_in_the_sections_themselves_is_told_at_the_old_file() {
    let folder = folder_with("[tool_types.rest]\nconfig_files = [\"a.toml\"]\n");
    let tool =
        "name = \"a\"\ntool_type = \"rest\"\ndescription = 5\nmethod = \"FETCH\"\napi_url = \"https://{host}/x\"\n";
    folder.write("configs/tools/a.toml", tool);
    let problems = load_tree(&folder).expect_err("there are three mistakes").to_string();
    for place in ["configs/tools/a.toml:3:15", "configs/tools/a.toml:4:10"] {
        assert!(problems.contains(place), "{place}\n{problems}");
    }
    folder.write("configs/tools/a.toml", "name = \"a\n");
    let problems = load_tree(&folder).expect_err("it is not TOML").to_string();
    assert!(problems.contains("invalid TOML") && problems.contains("configs/tools/a.toml:1:"), "{problems}");
    folder.write("toolhub.toml", "[imports]\nregistry = [\"nowhere.toml\"]\n");
    let problems = super::load(&folder.load_options(&[])).expect_err("it does not exist").to_string();
    assert!(
        problems.contains("toolhub.toml:2:13") && problems.contains("cannot read nowhere.toml: no such file"),
        "{problems}"
    );
}
