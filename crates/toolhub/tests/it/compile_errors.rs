//! Compile errors of invalid tools are understandable.
//!
//! Each case is compiled against a library that was built with this test, so that nothing is built twice. Only our own
//! messages are checked: the compiler's rendering may change from version to version.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::SystemTime,
};

/// The derives name the re-exports of `toolhub`, so that a case needs no other library.
const PRELUDE: &str = "
    use toolhub::prelude::*;
    #[derive(Deserialize, JsonSchema)]
    #[serde(crate = \"toolhub::prelude::serde\")] #[schemars(crate = \"toolhub::prelude::schemars\")]
    pub struct Add { pub a: i64, pub b: i64 }
    #[derive(Default, Serialize, Deserialize)] #[serde(crate = \"toolhub::prelude::serde\")] pub struct Plain { n: u8 }
    pub struct Alien;
";
const VALID_TOOL: &str = "
    async fn add(numbers: Add, cx: CallContext) -> Result<i64, ToolError> { let _ = cx; Ok(numbers.a) } tool(\"add\", add)
";

/// Compiles a piece of code; returns the compiler's output, or `None` on success.
fn compile(name: &str, body: &str) -> Option<String> {
    compile_with(usable_library(), name, body)
}

fn compile_with(library: &Path, name: &str, body: &str) -> Option<String> {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = out.join(format!("{name}.rs"));
    fs::write(&source, format!("{PRELUDE}\npub fn case() -> ToolBuilder {{ {body} }}")).unwrap();
    let mut rustc = Command::new(std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into()));
    rustc.args(["--edition=2024", "--crate-type=lib", "--emit=metadata", "--crate-name", name, "--out-dir"]).arg(&out);
    rustc.arg("-L").arg(format!("dependency={}", library.parent().unwrap().display())).arg(&source);
    rustc.arg("--extern").arg(format!("toolhub={}", library.display()));
    let result = rustc.output().expect("rustc built this test, so it is available");
    (!result.status.success()).then(|| String::from_utf8_lossy(&result.stderr).into_owned())
}

/// What the compiler says about a library whose dependencies were built again or by another compiler.
const UNUSABLE: [&str; 5] = ["E0460", "E0463", "E0464", "E0514", "E0786"];

/// The newest library that a valid tool compiles with. A used target folder holds several, built with other features or by
/// another compiler; those whose dependencies were built again since are unusable.
fn usable_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
        let is_library = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("libtoolhub-") && name.ends_with(".rlib")
        };
        let mut libraries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(is_library).collect();
        let built_at =
            |path: &PathBuf| fs::metadata(path).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        libraries.sort_by_key(|path| std::cmp::Reverse(built_at(path)));
        let mut errors = String::new();
        for library in libraries {
            match compile_with(&library, "valid", VALID_TOOL) {
                None => return library,
                Some(error) if UNUSABLE.iter().any(|code| error.contains(code)) => errors += &error,
                // Not the library's age but its content: an older one would hide that valid tools no longer compile.
                Some(error) => panic!("a valid tool does not compile with {}:\n{error}", library.display()),
            }
        }
        panic!("no library is usable:\n{errors}")
    })
}

#[track_caller]
fn check(name: &str, body: &str, expected: &[&str]) {
    let output = compile(name, body).unwrap_or_else(|| panic!("{name} compiled"));
    for words in expected {
        assert!(output.contains(words), "{name}: the compiler did not print {words:?} but:\n{output}");
    }
}

#[test]
fn a_good_tool_compiles_so_that_the_others_fail_for_their_own_reason() {
    assert_eq!(compile("good", VALID_TOOL), None);
}

#[test]
fn arguments_that_cannot_be_read_are_named() {
    let body = "async fn add(numbers: Alien) -> Result<i64, ToolError> { let _ = numbers; Ok(1) } tool(\"add\", add)";
    check(
        "arguments",
        body,
        &["`Alien` cannot be the arguments of a tool", "derive `serde::Deserialize` and `schemars::JsonSchema`"],
    );
    let body = "async fn add(numbers: Plain) -> Result<i64, ToolError> { let _ = numbers; Ok(1) } tool(\"add\", add)";
    check("schema", body, &["`Plain` cannot be the arguments of a tool", "`schemars::JsonSchema`"]);
}

#[test]
fn something_a_tool_cannot_ask_for_is_named() {
    let body = "async fn add(numbers: Add, x: Alien) -> Result<i64, ToolError> { let _ = (numbers, x); Ok(1) }
                tool(\"add\", add)";
    check("extractor", body, &["a tool cannot be given a `Alien`", "any of `State<S>`, `CallContext` and `Shared<T>`"]);
}

#[test]
fn a_state_without_a_name_is_told_how_to_get_one() {
    let body = "async fn add(numbers: Add, x: State<Plain>) -> Result<i64, ToolError> { let _ = (numbers, x); Ok(1) }
                tool(\"add\", add)";
    check("state", body, &["`Plain` cannot be used as the state of a tool", "const NAME"]);
}

#[test]
fn a_function_that_is_not_async_is_no_tool() {
    let body = "fn add(numbers: Add) -> Result<i64, ToolError> { Ok(numbers.a) } tool(\"add\", add)";
    check("not_async", body, &["cannot be a tool", "a tool is an `async fn`", "registered with `blocking`"]);
}

#[test]
fn a_function_without_arguments_is_told_what_to_take() {
    let body = "async fn add() -> Result<i64, ToolError> { Ok(1) } tool(\"add\", add)";
    check("no_parameters", body, &["cannot be a tool", "`NoArguments`"]);
}

#[test]
fn an_async_function_is_no_blocking_tool() {
    let body = "async fn add(numbers: Add) -> Result<i64, ToolError> { Ok(numbers.a) } blocking(\"add\", add)";
    check("blocking", body, &["cannot be a blocking tool", "an `async fn` is registered with `tool`"]);
}

#[test]
fn an_object_that_is_no_stateful_tool_is_told_what_to_implement() {
    check("object", "stateful(\"add\", Alien)", &["`Alien` is not a stateful tool", "implement `StatefulTool`"]);
}
