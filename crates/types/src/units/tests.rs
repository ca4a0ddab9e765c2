//! Parsing and formatting of durations and sizes, and the suggestions for near misses.

use super::*;

#[track_caller]
fn check(text: &str, expected: Result<u64, &str>) {
    let millis = parse_duration(text).map(|duration| duration.as_millis() as u64).map_err(|error| error.help);
    assert_eq!(millis, expected.map_err(String::from), "{text}");
}

#[test]
fn times_have_units_and_may_be_put_together() {
    check("500ms", Ok(500));
    check("30s", Ok(30_000));
    check("1h30m", Ok(5_400_000));
    check("14d", Ok(14 * 86_400_000));
    check("0s", Ok(0));
}

#[test]
fn a_time_that_was_nearly_right_is_said_right() {
    check("30 s", Err("write \"30s\""));
    check("30sec", Err("write \"30s\""));
    check("9999999999s", Err("write \"115740d17h46m39s\""));
    check("007s", Err("write \"7s\""));
    check("1.5h", Err("write \"1h30m\""));
    check("2 Weeks", Err("write \"14d\""));
    check("0.25 seconds", Err("write \"250ms\""));
    check("30", Err("write the unit in a string: \"30s\" for seconds, \"30ms\" for milliseconds"));
    let general_help = "write a whole number and ms, s, m, h or d, such as \"500ms\", \"30s\" or \"1h30m\"";
    for text in ["", "soon", "s", "-5s", "1h-3m", "1e9s", "５s"] {
        check(text, Err(general_help));
    }
}

#[test]
fn sizes_have_units() {
    for (text, expected) in [("1B", 1), ("2MiB", 2 << 20), ("10KB", 10_000), ("3GiB", 3 << 30)] {
        assert_eq!(parse_size(text), Ok(expected), "{text}");
    }
    for (text, help) in [("2mb", "write \"2MB\""), ("1.5 GiB", "write \"1536MiB\""), ("64k", "write \"64KiB\"")] {
        assert_eq!(parse_size(text).unwrap_err().help, help, "{text}");
    }
    for text in ["0B", "1234567890B", "2", "MiB", "1MiB1KiB", ""] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    for millis in [1, 999, 1_000, 61_000, 86_400_000, 90_061_001, 30 * 86_400_000] {
        assert_eq!(parse_duration(&format_duration(millis)).unwrap().as_millis() as u64, millis);
    }
    for bytes in [1, 1_000, 1_024, 1_536, 1 << 20, 25_000, 3 << 30, 999_999] {
        assert_eq!(parse_size(&format_size(bytes)).unwrap(), bytes);
    }
    assert_eq!((format_size(2 << 20), format_size(25_000)), ("2MiB".into(), "25KB".into()));
}
