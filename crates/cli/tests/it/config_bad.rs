//! Error messages for invalid configs.
//!
//! Each file in `config/bad` has a text of the same name beside it: the output of the check. `TOOLHUB_BLESS=1` rewrites them.

use crate::config::load_cases;

#[test]
fn each_mistake_is_told_with_its_place_and_what_to_do() {
    let bless = std::env::var_os("TOOLHUB_BLESS").is_some();
    let cases = load_cases("bad");
    assert!(cases.len() > 40, "{} files", cases.len());
    let mut mismatches = Vec::new();
    for case in cases {
        let ran = case.check();
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", case.name());
        let beside = case.path.with_extension("txt");
        if bless {
            std::fs::write(&beside, &ran.err).expect("it can be written");
        }
        let expected = std::fs::read_to_string(&beside).unwrap_or_default();
        if ran.err != expected {
            mismatches.push(format!("{}: expected\n{expected}\ngot\n{}", case.name(), ran.err));
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}

#[test]
fn every_problem_comes_with_advice() {
    for case in load_cases("bad") {
        let text = case.check().err;
        let problems = text.matches("error: ").count() - 1;
        assert_eq!(text.matches("= help: ").count(), problems, "{}:\n{text}", case.name());
        assert!(!text.contains('\u{1b}'), "no colours outside a terminal");
    }
}
