//! Checks `docs/cli.md` against the binary: its samples are replayed, and every command is documented.

use std::path::PathBuf;
use toolhub_testkit::TempFolder;

use crate::{
    cli::{
        assert_steps_match, play,
        script::{Script, Step},
    },
    config::run_toolhub,
};

const BEGIN: &str = "```console\n";
const END: &str = "\n```";

fn page_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")
}

/// The samples of the page, as one session in a folder without a config; and their positions.
fn parse_samples(text: &str) -> (Script, Vec<std::ops::Range<usize>>) {
    let (mut session, mut ranges, mut at) = (String::from("# setup: empty\n\n"), Vec::new(), 0);
    while let Some(begin) = text[at..].find(BEGIN).map(|found| at + found + BEGIN.len()) {
        let end = begin + text[begin..].find(END).expect("every sample ends");
        session += &text[begin..end];
        session.push('\n');
        ranges.push(begin..end);
        at = end;
    }
    (Script::parse(&session), ranges)
}

#[test]
fn the_samples_of_the_page_are_what_happens() {
    let text = std::fs::read_to_string(page_path()).expect("the page can be read");
    let (script, ranges) = parse_samples(&text);
    let played = play(&script);
    if std::env::var_os("TOOLHUB_BLESS").is_some() {
        let mut remaining = played.iter();
        let mut written = text.clone();
        let blocks: Vec<String> = ranges
            .iter()
            .map(|range| {
                let count = text[range.clone()].lines().filter(|line| line.starts_with("$ ")).count();
                let render =
                    |step: &Step| format!("$ {}\n{}", step.command, step.output.trim_end()).trim_end().to_owned();
                remaining.by_ref().take(count).map(render).collect::<Vec<_>>().join("\n\n")
            })
            .collect();
        for (range, block) in ranges.iter().zip(blocks).rev() {
            written.replace_range(range.clone(), &block);
        }
        std::fs::write(page_path(), written).expect("the page can be written");
        return;
    }
    assert_steps_match("docs/cli.md", &script.steps, &played);
}

/// The subcommands listed in the help of a command.
fn list_subcommands(words: &[&str]) -> Vec<String> {
    let folder = TempFolder::new();
    let help = run_toolhub(folder.path(), &[words, &["--help"]].concat(), &[("COLUMNS", "200")]).out;
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(String::from).collect()
}

#[test]
fn every_command_and_every_global_flag_is_on_the_page() {
    let text = std::fs::read_to_string(page_path()).expect("the page can be read");
    let first = list_subcommands(&[]);
    assert!(first.len() > 10, "expected the list of commands, found {first:?}");
    let mut missing = Vec::new();
    for name in &first {
        let inner = list_subcommands(&[name]);
        let all: Vec<String> = match inner.is_empty() {
            true => vec![format!("toolhub {name}")],
            false => inner.iter().map(|inner| format!("toolhub {name} {inner}")).collect(),
        };
        missing.extend(all.into_iter().filter(|command| !text.contains(command.as_str())));
    }
    let folder = TempFolder::new();
    let help = run_toolhub(folder.path(), &["version", "--help"], &[("COLUMNS", "200")]).out;
    let flags =
        help.split_whitespace().filter(|word| word.starts_with("--")).map(|word| word.trim_end_matches([',', '.']));
    missing.extend(flags.filter(|flag| !text.contains(&format!("`{flag}"))).map(String::from));
    assert_eq!(missing, Vec::<String>::new(), "missing in docs/cli.md");
}
