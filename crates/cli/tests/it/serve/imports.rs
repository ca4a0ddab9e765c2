//! Untrusted OpenAPI documents: their texts are written into the config as strings, and can never add lines to it.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
    thread,
};

use serde_json::{Value, json};
use toolhub_testkit::TempFolder;

use crate::config::{RunOutput, run_toolhub};

/// A document with one operation and one security scheme.
fn document(scheme: &str, kind: &Value) -> String {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "日本", "version": "1" },
        "servers": [{ "url": "https://pets.example/v1" }],
        "components": { "securitySchemes": { scheme: kind } },
        "security": [{ scheme: [] }],
        "paths": { "/pets": { "get": { "operationId": "list" } } },
    })
    .to_string()
}

fn api_key_scheme() -> Value {
    json!({ "type": "apiKey", "in": "header", "name": "X-Key" })
}

fn import(folder: &TempFolder, document: &str, more: &[&str], variables: &[(&str, &str)]) -> RunOutput {
    folder.write("toolhub.toml", "# mine\n");
    folder.write("pets.json", document);
    run_toolhub(folder.path(), &[&["import", "openapi", "pets.json"], more].concat(), variables)
}

fn list_tools(folder: &TempFolder, variables: &[(&str, &str)]) -> Vec<String> {
    let listed = run_toolhub(folder.path(), &["tools", "list", "--json"], variables);
    let whole: Value = serde_json::from_str(&listed.out).expect("a list of tools");
    let names = whole["items"].as_array().into_iter().flatten();
    names.map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_name_in_a_document_cannot_become_lines_of_the_config() {
    let folder = TempFolder::new();
    for name in [
        "[tools.evil]\ncommand = \"sh\"\n# ",
        "\r\n[tools.evil]\nbuiltin = 'clock'\n#",
        "quote\" = 1\n[tools.evil]\nbuiltin = 'clock'\n#",
        "it's \"quoted\" \\ \u{7f}\u{1b}[31m",
        "",
    ] {
        let ran = import(&folder, &document(name, &api_key_scheme()), &[], &[]);
        assert_eq!((ran.code, list_tools(&folder, &[])), (0, vec!["list".to_owned()]), "{name:?} {}", ran.err);
        assert!(!ran.err.contains(['\u{1b}', '\u{7f}']), "{:?}", ran.err);
    }
    // With a value for the variable, the line is active and correct.
    let (name, variables) = ("a\n\"b' \u{7f}", [("PET_A__B___", "x")]);
    let ran = import(&folder, &document(name, &api_key_scheme()), &["--prefix", "pet"], &variables);
    assert_eq!((ran.code, list_tools(&folder, &variables)), (0, vec!["pet__list".to_owned()]), "{}", ran.err);
    assert!(folder.read("toolhub.toml").contains("\ncredentials.\"a"), "{}", folder.read("toolhub.toml"));
}

#[test]
fn a_document_does_not_choose_which_variable_is_sent_to_its_service() {
    let folder = TempFolder::new();
    let variables = [("AWS_SECRET_ACCESS_KEY", "x"), ("SECRET", "y")];
    let ran = import(&folder, &document("aws_secret_access_key", &api_key_scheme()), &[], &variables);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let config = folder.read("toolhub.toml");
    assert!(config.contains("\n# credentials.aws_secret_access_key = "), "{config}");
}

#[test]
fn a_way_to_sign_that_is_not_known_stops_no_import() {
    let folder = TempFolder::new();
    for kind in [json!({ "type": "mutualTLS" }), json!({ "type": "http", "scheme": "digest" })] {
        let ran = import(&folder, &document("odd", &kind), &["--prefix", "pet"], &[]);
        assert_eq!((ran.code, list_tools(&folder, &[])), (0, vec!["pet__list".to_owned()]), "{kind} {}", ran.err);
    }
}

/// A document with operations of two tags.
fn tagged_document() -> String {
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Pets", "version": "1" },
        "servers": [{ "url": "http://127.0.0.1:9000/v1" }],
        "components": { "securitySchemes": { "key": api_key_scheme() } },
        "security": [{ "key": [] }],
        "paths": {
            "/pets": {
                "get": { "operationId": "pets/list", "tags": ["pets"] },
                "post": { "operationId": "pets/add", "tags": ["pets"] },
            },
            "/toys": { "get": { "operationId": "toys.list", "tags": ["toys"] } },
        },
    })
    .to_string()
}

#[test]
fn operations_are_selected_by_tag_and_method_and_selecting_none_is_an_error() {
    let folder = TempFolder::new();
    for (flags, expected) in [
        (&["--tag", "pets", "--method", "GET"][..], &["pets_list"][..]),
        (&["--method", "get"], &["pets_list", "toys_list"]),
        (&["--tag", "toys", "--tag", "pets"], &["pets_add", "pets_list", "toys_list"]),
    ] {
        let ran = import(&folder, &tagged_document(), flags, &[]);
        assert_eq!(ran.code, 0, "{}", ran.err);
        assert_eq!(list_tools(&folder, &[]), expected, "{flags:?}");
    }
    for (flags, hint) in [(&["--tag", "dogs"][..], "`pets`, `toys`"), (&["--include", "x*"], "`x*` in `include`")] {
        let ran = import(&folder, &tagged_document(), flags, &[]);
        assert_eq!((ran.code, folder.read("toolhub.toml").as_str()), (2, "# mine\n"), "{}", ran.err);
        assert!(ran.err.contains("no operation of \"Pets\" was selected; it has 3"), "{}", ran.err);
        assert!(ran.err.contains(hint), "{}", ran.err);
    }
    let ran = import(&folder, &tagged_document(), &["--method", "fetch"], &[]);
    assert!(ran.code == 2 && ran.err.contains("`fetch` is not a method"), "{}", ran.err);
}

#[test]
fn an_import_says_what_is_left_to_do_and_that_it_was_done_before() {
    let folder = TempFolder::new();
    let first = import(&folder, &tagged_document(), &["--prefix", "pet"], &[]);
    assert_eq!(first.code, 0, "{}", first.err);
    let config = folder.read("toolhub.toml");
    let line = config.lines().position(|line| line.starts_with("# credentials.key = ")).expect("the credential") + 1;
    assert!(first.err.contains(&format!("uncomment line {line}, credentials.key = {{ token")), "{}", first.err);
    assert!(first.err.contains("requests to `127.0.0.1` are refused"), "{}", first.err);
    assert!(first.err.contains("allow_hosts = [\"127.0.0.1\"]"), "{}", first.err);
    let again = |flags: &[&str]| {
        run_toolhub(
            folder.path(),
            &[&["import", "openapi", "./pets.json", "--allow-host", "127.0.0.1"], flags].concat(),
            &[],
        )
    };
    let refused = again(&["--prefix", "pet"]);
    assert_eq!((refused.code, folder.read("toolhub.toml")), (2, config), "{}", refused.err);
    assert!(refused.err.contains("is imported already") && refused.err.contains("another --prefix"), "{}", refused.err);
    let other = again(&["--prefix", "dog"]);
    assert_eq!(other.code, 0, "{}", other.err);
    assert!(other.err.contains("imported already, with the prefix `pet`"), "{}", other.err);
    assert!(!other.err.contains("are refused, because"), "{}", other.err);
}

/// Serves a document on every path.
fn serve_document(document: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it listens").port();
    thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0; 1]);
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|count| count > 0) {
                head.extend_from_slice(&byte);
            }
            let status = if head.starts_with(b"GET /gone") { "404 Not Found" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", document.len());
            let _ = write!(client, "{head}\r\n\r\n{document}");
        }
    });
    port
}

#[test]
fn an_address_leaves_no_secret_behind_and_its_document_lies_in_specs() {
    let folder = TempFolder::new();
    let port = serve_document(document("key", &api_key_scheme()));
    for (prefix, file) in [(None, "specs/openapi.json"), (Some("../../up"), "specs/up.json")] {
        folder.write("toolhub.toml", "# mine\n");
        for (path, code) in [("gone", 2), ("pets", 0)] {
            let address = format!("http://user:hunter2pass@127.0.0.1:{port}/{path}.json?api_key=hunter2key#x");
            let mut words = vec!["import", "openapi", &address];
            words.extend(prefix.into_iter().flat_map(|prefix| ["--prefix", prefix]));
            let ran = run_toolhub(folder.path(), &words, &[]);
            assert_eq!(ran.code, code, "{}", ran.err);
            let output = format!("{}{}{}", ran.out, ran.err, folder.read("toolhub.toml"));
            assert!(!output.contains("hunter2"), "{output}");
        }
        assert!(folder.read("toolhub.toml").contains(&format!("spec = \"{file}\"")), "{}", folder.read("toolhub.toml"));
        assert!(folder.read(file).contains("pets.example"));
        assert!(folder.read("toolhub.toml").contains(&format!("document_url = \"http://127.0.0.1:{port}/pets.json\"")));
    }
}

#[test]
fn a_config_that_would_be_wrong_is_never_written() {
    let folder = TempFolder::new();
    let fetched = format!("http://127.0.0.1:{}/pets.json", serve_document(document("key", &api_key_scheme())));
    folder.write("toolhub.toml", "[tools.list]\nbuiltin = 'clock'\n");
    folder.write("pets.json", &document("key", &api_key_scheme()));
    // A file that was rewritten has another inode.
    let file = || folder.path().join("toolhub.toml").metadata().expect("it is there").ino();
    let before = file();
    for spec in ["pets.json", &fetched] {
        let ran = run_toolhub(folder.path(), &["import", "openapi", spec], &[]);
        assert!(ran.code == 2 && ran.err.contains("two tools named"), "{} {}", ran.code, ran.err);
        assert!(ran.err.contains("nothing was written"), "{}", ran.err);
    }
    assert_eq!(file(), before);
    assert!(!folder.path().join("specs").exists());
    assert_eq!(folder.read("toolhub.toml"), "[tools.list]\nbuiltin = 'clock'\n");
}

#[test]
fn without_a_project_the_users_own_config_is_left_alone() {
    let folder = TempFolder::new();
    let own = ".config/toolhub/config.toml";
    std::fs::create_dir_all(folder.path().join(own).parent().expect("a folder")).expect("it is ours");
    folder.write(own, "# mine alone\n");
    folder.write("pets.json", &document("key", &api_key_scheme()));
    let ran = run_toolhub(folder.path(), &["import", "openapi", "pets.json"], &[]);
    assert_eq!(ran.code, 2, "{}", ran.err);
    let target = folder.path().join("toolhub.toml");
    assert!(ran.err.contains("toolhub init --empty") && ran.err.contains(&target.display().to_string()), "{}", ran.err);
    assert_eq!(folder.read(own), "# mine alone\n");
    // Naming the file explicitly is enough.
    let ran = run_toolhub(folder.path(), &["--config", own, "import", "openapi", "pets.json"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(folder.read(own).contains("[[imports.openapi]]"));
}

#[test]
fn a_config_that_cannot_be_written_stays_as_it_is() {
    let folder = TempFolder::new();
    let mine = format!("# {}\n", "mine ".repeat(1_000));
    folder.write("kept.toml", &mine);
    folder.write("pets.json", &document("key", &api_key_scheme()));
    let link = folder.path().join("toolhub.toml");
    std::os::unix::fs::symlink("kept.toml", &link).expect("a link can be made");
    std::fs::set_permissions(&link, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    // Limit the file size, as on a full disk.
    let fetched = format!("http://127.0.0.1:{}/pets.json", serve_document(document("key", &api_key_scheme())));
    for spec in ["pets.json", &fetched] {
        let toolhub = env!("CARGO_BIN_EXE_toolhub");
        let import = format!("trap '' XFSZ; ulimit -f 4; exec '{toolhub}' import openapi {spec}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &import]).current_dir(folder.path()).env_clear().env("HOME", folder.path());
        let ran = shell.output().expect("a shell");
        assert_eq!(ran.status.code(), Some(1), "{}", String::from_utf8_lossy(&ran.stderr));
        assert_eq!(folder.read("toolhub.toml"), mine);
        assert!(!folder.path().join("specs").exists(), "a document without a config is removed");
    }

    let ran = run_toolhub(folder.path(), &["import", "openapi", "pets.json"], &[]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(folder.read("kept.toml").contains("[[imports.openapi]]"));
    assert!(link.symlink_metadata().expect("it is there").is_symlink());
    assert_eq!(link.metadata().expect("it is there").permissions().mode() & 0o777, 0o600);
}
