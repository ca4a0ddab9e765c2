//! Parses and formats durations and sizes with units: `"30s"`, `"1h30m"`, `"2MiB"`.
//!
//! In: text. Out: a value, or an error with a suggestion; and back to text. Callers refuse bare numbers, because a reader cannot tell seconds
//! from milliseconds. The patterns describe the same texts in a JSON Schema. Serde types are left to the crates that have configs and
//! requests.

use std::{borrow::Cow, time::Duration};

/// A text that is not a valid duration or size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitError {
    /// The problem.
    pub message: String,
    /// What to write instead.
    pub help: String,
}

/// Units of durations and their milliseconds, ascending. Weeks are allowed in keys and API requests, not in configs.
pub const DURATION_UNITS: [(&str, u64); 6] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];
/// The units allowed in configs.
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
/// Maximum number of digits per amount; more are surely a mistake and could overflow.
const MAX_DIGITS: usize = 9;

/// The quantities that are written with a unit; each is a `format` in the JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A duration longer than zero.
    Time,
    /// A duration that may be zero.
    Delay,
    /// A duration longer than zero, or `never`.
    DurationOrNever,
    /// A number of bytes.
    Size,
}

impl Unit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Time, Self::Delay, Self::DurationOrNever, Self::Size];

    /// The value of `format` in the JSON Schema.
    #[must_use]
    pub fn format(self) -> &'static str {
        match self {
            Self::Time => "toolhub-time",
            Self::Delay => "toolhub-delay",
            Self::DurationOrNever => "toolhub-time-or-never",
            Self::Size => "toolhub-size",
        }
    }

    /// The `pattern` in the JSON Schema. Numbers have no leading zero, so that the pattern can require a nonzero amount.
    #[must_use]
    pub fn pattern(self) -> String {
        let (nonzero, unit) = ("[1-9][0-9]{0,8}", "(ms|s|m|h|d)");
        let amount = format!("(0|{nonzero}){unit}");
        match self {
            Self::Time => format!("^({amount})*{nonzero}{unit}({amount})*$"),
            Self::Delay => format!("^({amount})+$"),
            Self::DurationOrNever => format!("^never$|^({amount})*{nonzero}{unit}({amount})*$"),
            Self::Size => format!("^{nonzero}(B|KB|MB|GB|KiB|MiB|GiB)$"),
        }
    }

    /// A description with an example, for messages.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Time | Self::Delay => "a duration, such as \"30s\" or \"5m\"",
            Self::DurationOrNever => "a duration, such as \"14d\", or \"never\"",
            Self::Size => "a size, such as \"2MiB\"",
        }
    }

    /// Checks a text.
    ///
    /// # Errors
    /// When the text is not of this form.
    pub fn check(self, text: &str) -> Result<(), UnitError> {
        match self {
            Self::Time => parse_positive_duration(text).map(drop),
            Self::Delay => parse_duration(text).map(drop),
            Self::DurationOrNever if text == "never" => Ok(()),
            Self::DurationOrNever => parse_positive_duration(text).map(drop),
            Self::Size => parse_size(text).map(drop),
        }
    }

    /// Suggests what to write instead of a bare number.
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

/// Parses a duration longer than zero.
///
/// # Errors
/// When the text is not a duration, or is zero.
pub fn parse_positive_duration(text: &str) -> Result<Duration, UnitError> {
    let duration = parse_duration(text)?;
    if duration.is_zero() {
        return Err(UnitError {
            message: format!("\"{text}\" is not a positive duration"),
            help: "use at least \"1ms\"".into(),
        });
    }
    Ok(duration)
}

/// Parses a duration: `1h30m`.
///
/// # Errors
/// When the text is not a duration.
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let millis = parse_strictly(text, TIME_UNITS, usize::MAX);
    millis.map(Duration::from_millis).ok_or_else(|| {
        let with_unit = text.parse::<u32>().ok().map(|number| Unit::Time.suggest_with_unit(number.into()));
        let suggestion = with_unit.or_else(|| suggest_correction(text, &duration_unit_aliases(), format_duration));
        let help = suggestion.unwrap_or_else(|| {
            "write a whole number and ms, s, m, h or d, such as \"500ms\", \"30s\" or \"1h30m\"".into()
        });
        UnitError { message: format!("\"{}\" is not a valid duration", ellipsize(text)), help }
    })
}

/// Parses a duration from the command line: as in a config, or one number with a fraction, such as `1.5m`.
#[must_use]
pub fn parse_cli_duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().or_else(|| {
        let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let scale = TIME_UNITS.iter().find(|(name, _)| *name == unit)?.1;
        Duration::try_from_secs_f64(number.parse::<f64>().ok()? * scale as f64 / 1000.0).ok()
    })
}

/// Parses a size larger than zero: `2MiB`.
///
/// # Errors
/// When the text is not a size, or is zero.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let bytes = parse_strictly(text, &SIZE_UNITS, 1).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| {
        let suggestion = suggest_correction(text, &size_unit_aliases(), format_size);
        let help = suggestion
            .unwrap_or_else(|| "write a whole number and B, KB, MB, GB, KiB, MiB or GiB, such as \"2MiB\"".into());
        UnitError { message: format!("\"{}\" is not a valid size", ellipsize(text)), help }
    })
}

/// Parses up to `max_amounts` amounts with units, such as `1h30m`, and sums them up in the smallest unit: milliseconds for
/// [`DURATION_UNITS`]. `None` if the text has another form, or the sum overflows.
#[must_use]
pub fn parse_with(text: &str, units: &[(&str, u64)], max_amounts: usize) -> Option<u64> {
    let amounts = split_amounts(text).filter(|amounts| (1..=max_amounts).contains(&amounts.len()))?;
    amounts.into_iter().try_fold(0_u64, |sum, (number, unit)| {
        let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
        sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*scale)?)
    })
}

/// Like [`parse_with`], but refuses leading zeros and more than [`MAX_DIGITS`] digits.
fn parse_strictly(text: &str, units: &[(&str, u64)], max_amounts: usize) -> Option<u64> {
    let is_strict = |number: &str| number.len() <= MAX_DIGITS && (number.len() == 1 || !number.starts_with('0'));
    let all_strict = split_amounts(text)?.iter().all(|(number, _)| is_strict(number));
    if all_strict { parse_with(text, units, max_amounts) } else { None }
}

/// Splits the text into pairs of digits and letters; `None` if it has another form.
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

/// Suggests the correct form of texts such as `30 sec` or `1.5 GB`.
fn suggest_correction(text: &str, aliases: &[(&str, u64)], format: fn(u64) -> String) -> Option<String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit.trim().to_lowercase();
    let scale = aliases.iter().find(|(alias, _)| *alias == unit)?.1;
    let value = number.parse::<f64>().ok()? * scale as f64;
    // Values that a float cannot represent exactly, or that round to zero, get no suggestion rather than a wrong one.
    let corrected = (1.0..1e15).contains(&value).then(|| format(value as u64))?;
    let digits = corrected.find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
    (digits <= MAX_DIGITS).then(|| format!("write \"{corrected}\""))
}

fn duration_unit_aliases() -> Vec<(&'static str, u64)> {
    let aliases: [(&[&str], u64); 5] = [
        (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1),
        (&["s", "sec", "secs", "second", "seconds"], 1_000),
        (&["m", "min", "mins", "minute", "minutes"], 60_000),
        (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
        (&["d", "day", "days"], 86_400_000),
    ];
    let mut all: Vec<_> = aliases.iter().flat_map(|(names, scale)| names.iter().map(|name| (*name, *scale))).collect();
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

/// The shortest text of a duration in milliseconds.
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

/// The shortest text of a size in bytes.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    let mut units: Vec<_> = SIZE_UNITS.iter().filter(|(_, scale)| bytes.is_multiple_of(*scale)).collect();
    units.sort_by_key(|(_, scale)| *scale);
    units.last().map_or_else(|| format!("{bytes}B"), |(unit, scale)| format!("{}{unit}", bytes / scale))
}

/// The first 60 characters of a text, with an ellipsis if it is longer; for messages.
#[must_use]
pub fn ellipsize(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]).into(),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests;
