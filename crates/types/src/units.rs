//! Times and sizes as people write them: `"30s"`, `"1h30m"`, `"2MiB"`.
//!
//! In: text. Out: a value, or what to write instead; and back. Bare numbers are refused elsewhere, because nobody can tell seconds from
//! milliseconds by looking at them. The patterns are what a schema says of the same texts. Types that serde reads are left to the
//! crates that have configs and requests.

use std::{borrow::Cow, time::Duration};

/// A text that is no time or no size: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError {
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Units of durations and their milliseconds, ascending. Configs have no weeks; keys and requests of the API do.
pub const DURATION_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
/// The units of a config.
const TIME_UNITS: &[(&str, u64)] = DURATION_UNITS.split_at(5).0;
const SIZE_UNITS: [(&str, u64); 7] = [
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];
/// More digits than this mean nothing to anybody, and would not fit.
const MAX_DIGITS: usize = 9;

/// What units are written in, as the schema's `format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A time that is longer than nothing.
    Time,
    /// A time that may be nothing.
    Delay,
    /// A time, or `never`.
    DurationOrNever,
    /// A number of bytes.
    Size,
}

impl Unit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Time, Self::Delay, Self::DurationOrNever, Self::Size];

    /// The word in the schema.
    #[must_use]
    pub fn format(self) -> &'static str {
        match self {
            Self::Time => "toolhub-time",
            Self::Delay => "toolhub-delay",
            Self::DurationOrNever => "toolhub-time-or-never",
            Self::Size => "toolhub-size",
        }
    }

    /// What texts look like. Numbers begin with no 0, so that a pattern can tell something from nothing.
    #[must_use]
    pub fn pattern(self) -> String {
        let (some, unit) = ("[1-9][0-9]{0,8}", "(ms|s|m|h|d)");
        let part = format!("(0|{some}){unit}");
        match self {
            Self::Time => format!("^({part})*{some}{unit}({part})*$"),
            Self::Delay => format!("^({part})+$"),
            Self::DurationOrNever => format!("^never$|^({part})*{some}{unit}({part})*$"),
            Self::Size => format!("^{some}(B|KB|MB|GB|KiB|MiB|GiB)$"),
        }
    }

    /// How people call it.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Time | Self::Delay => "a time, such as \"30s\" or \"5m\"",
            Self::DurationOrNever => "a time, such as \"14d\", or \"never\"",
            Self::Size => "a size, such as \"2MiB\"",
        }
    }

    /// Checks a text.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, text: &str) -> Result<(), UnitError> {
        match self {
            Self::Time => parse_positive_duration(text).map(drop),
            Self::Delay => parse_duration(text).map(drop),
            Self::DurationOrNever if text == "never" => Ok(()),
            Self::DurationOrNever => parse_positive_duration(text).map(drop),
            Self::Size => parse_size(text).map(drop),
        }
    }

    /// What to write instead of a bare number.
    #[must_use]
    pub fn suggest_with_unit(self, number: f64) -> String {
        let as_unit = |scale: f64| (number * scale).clamp(0.0, 1e15) as u64;
        match self {
            Self::Size if number >= 1024.0 => {
                format!("write the unit in a string: \"{}\", if these are bytes", format_size(as_unit(1.0)))
            }
            Self::Size => format!("write the unit in a string: \"{number}KiB\" or \"{number}MiB\""),
            _ if number.fract() == 0.0 => {
                format!("write the unit in a string: \"{number}s\" for seconds, \"{number}ms\" for milliseconds")
            }
            _ => format!("write the unit in a string: \"{}\", if these are seconds", format_duration(as_unit(1000.0))),
        }
    }
}

/// Reads a time that is longer than nothing.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_positive_duration(text: &str) -> Result<Duration, UnitError> {
    let read = parse_duration(text)?;
    if read.is_zero() {
        return Err(UnitError {
            message: format!("\"{text}\" is no time at all"),
            help: "use at least \"1ms\"".into(),
        });
    }
    Ok(read)
}

/// Reads a time: `1h30m`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let amounts = parse_strict_amounts(text, TIME_UNITS).filter(|amounts| !amounts.is_empty());
    let read = amounts.map(|amounts| {
        amounts.into_iter().fold(0_u64, |sum, (number, scale)| sum.saturating_add(number.saturating_mul(scale)))
    });
    read.map(Duration::from_millis).ok_or_else(|| {
        let bare = text.parse::<u32>().ok().map(|number| Unit::Time.suggest_with_unit(number.into()));
        let meant = bare.or_else(|| suggest_correction(text, &duration_unit_aliases(), format_duration));
        let help = meant.unwrap_or_else(|| {
            "write a whole number and ms, s, m, h or d, such as \"500ms\", \"30s\" or \"1h30m\"".into()
        });
        UnitError { message: format!("\"{}\" is no time", ellipsize(text)), help }
    })
}

/// Reads a time as it is typed on a command line: as in a config, or one number with a fraction, such as `1.5m`.
#[must_use]
pub fn parse_cli_duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().or_else(|| {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit)?.1;
        Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale as f64 / 1000.0).ok()
    })
}

/// Reads a size: `2MiB`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let bytes = parse_strict_amounts(text, &SIZE_UNITS).and_then(|amounts| match amounts[..] {
        [(number, scale)] => number.checked_mul(scale).filter(|bytes| *bytes > 0),
        _ => None,
    });
    bytes.ok_or_else(|| {
        let meant = suggest_correction(text, &size_unit_aliases(), format_size);
        let help =
            meant.unwrap_or_else(|| "write a whole number and B, KB, MB, GB, KiB, MiB or GiB, such as \"2MiB\"".into());
        UnitError { message: format!("\"{}\" is no size", ellipsize(text)), help }
    })
}

/// Reads numbers with units, such as `1h30m`: each number, and what its unit stands for in `units`. Nothing where the text is not made
/// of such. The caller adds them up within the bounds it has.
#[must_use]
pub fn parse_amounts(text: &str, units: &[(&str, u64)]) -> Option<Vec<(u64, u64)>> {
    apply_scales(&split_amounts(text)?, units)
}

/// The same where a number has no zero in front and no more digits than anybody needs.
fn parse_strict_amounts(text: &str, units: &[(&str, u64)]) -> Option<Vec<(u64, u64)>> {
    let parts = split_amounts(text)?;
    let is_plain = |number: &str| number.len() <= MAX_DIGITS && (number.len() == 1 || !number.starts_with('0'));
    if parts.iter().all(|(number, _)| is_plain(number)) { apply_scales(&parts, units) } else { None }
}

fn apply_scales(parts: &[(&str, &str)], units: &[(&str, u64)]) -> Option<Vec<(u64, u64)>> {
    let scale = |unit: &str| units.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
    parts.iter().map(|(number, unit)| Some((number.parse().ok()?, scale(unit)?))).collect()
}

/// Pairs of digits and letters; nothing where the text is not made of such.
fn split_amounts(mut text: &str) -> Option<Vec<(&str, &str)>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
        let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
        let (unit, rest) = rest.split_at(letters);
        if number.is_empty() || unit.is_empty() {
            return None;
        }
        parts.push((number, unit));
        text = rest;
    }
    Some(parts)
}

/// What somebody meant who wrote `30 sec` or `1.5 GB`.
fn suggest_correction(text: &str, words: &[(&str, u64)], write: fn(u64) -> String) -> Option<String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_lowercase();
    let scale = words.iter().find(|(word, _)| *word == unit)?.1;
    let value = number.parse::<f64>().ok()? * scale as f64;
    // More than a float can tell apart, or nothing: no advice is better than wrong advice.
    let written = (1.0..1e15).contains(&value).then(|| write(value as u64))?;
    let digits = written.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    (digits <= MAX_DIGITS).then(|| format!("write \"{written}\""))
}

fn duration_unit_aliases() -> Vec<(&'static str, u64)> {
    let words: [(&[&str], u64); 5] = [
        (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1),
        (&["s", "sec", "secs", "second", "seconds"], 1_000),
        (&["m", "min", "mins", "minute", "minutes"], 60_000),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
        (&["d", "day", "days"], 86_400_000),
    ];
    let mut all: Vec<_> = words.iter().flat_map(|(words, scale)| words.iter().map(|word| (*word, *scale))).collect();
    all.extend([("w", 7 * 86_400_000), ("week", 7 * 86_400_000), ("weeks", 7 * 86_400_000)]);
    all
}

fn size_unit_aliases() -> Vec<(&'static str, u64)> {
    vec![
        ("b", 1),
        ("byte", 1),
        ("bytes", 1),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
        ("k", 1 << 10),
        ("m", 1 << 20),
        ("g", 1 << 30),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
    ]
}

/// The shortest text for a time in milliseconds.
#[must_use]
pub fn format_duration(mut millis: u64) -> String {
    if millis == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, scale) in TIME_UNITS.iter().rev() {
        if millis >= *scale {
            text += &format!("{}{unit}", millis / scale);
            millis %= scale;
        }
    }
    text
}

/// The shortest text for a size in bytes.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let mut units: Vec<_> = SIZE_UNITS.iter().filter(|(_, scale)| bytes.is_multiple_of(*scale)).collect();
    units.sort_by_key(|(_, scale)| *scale);
    units.last().map_or_else(|| format!("{bytes}B"), |(unit, scale)| format!("{}{unit}", bytes / scale))
}

/// The beginning of a text that may be of any length, for a message.
#[must_use]
pub fn ellipsize(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &text[..at]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
