//! Recognizes secrets in texts of a config: arguments, variables, headers.
//!
//! In: a text, and its name if it has one. Out: whether it contains a secret, and for an argument which part of it. References
//! (`${NAME}`) are no secrets. A text that is taken for a secret without need becomes a variable, which does no harm.

use toolhub::redact::is_secret_setting;

/// The part of an argument that contains a secret.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SecretPart<'a> {
    /// What precedes it, such as `--header=X-Api-Key: `.
    pub(super) start: &'a str,
    /// Its name; empty if it has none.
    pub(super) name: &'a str,
}

/// Whether a text is or contains a secret, by its name or its looks.
pub(super) fn is_secret(name: &str, text: &str) -> bool {
    is_secret_by_name(name, &mask_references(text)) || looks_secret(text)
}

/// The secret part of an argument that follows a flag or stands alone.
pub(super) fn find_in_argument<'a>(flag: &'a str, arg: &'a str) -> Option<SecretPart<'a>> {
    let (mut parts, mut start) = (vec![(0, flag)], 0);
    // `--header=Name: value` has two names.
    while let Some((name, length)) = split_name(&arg[start..]).filter(|_| parts.len() < 3) {
        start += length;
        parts.push((start, name));
    }
    let is_named = |(start, name): &&(usize, &str)| is_secret_by_name(name, &mask_references(&arg[*start..]));
    let is_like = |(start, _): &&(usize, &str)| looks_secret(&arg[*start..]);
    let found = parts.iter().find(is_named).or_else(|| parts.iter().rfind(is_like));
    found.map(|(start, name)| SecretPart { start: &arg[..*start], name })
}

/// The name at the start of `NAME=value`, `--flag=value` or `Name: value`, and where the value begins.
fn split_name(text: &str) -> Option<(&str, usize)> {
    let end = text.find(['=', ':']).filter(|end| is_name(&text[..*end]))?;
    let (is_flag, is_header) = (text.starts_with('-'), text[end..].starts_with(':'));
    let value = text[end + 1..].trim_start();
    // A script may begin with an assignment.
    let is_script = !is_flag && !is_header && value.contains(char::is_whitespace);
    (!is_script && !value.starts_with('/')).then(|| (&text[..end], text.len() - value.len()))
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
}

/// Stands for a reference.
const MASK: char = '\0';

/// The text with a mask for each reference.
fn mask_references(text: &str) -> String {
    let (mut masked, mut rest) = (String::new(), text);
    while let Some((before, (_, after))) =
        rest.split_once("${").and_then(|(before, after)| Some((before, after.split_once('}')?)))
    {
        masked += before;
        masked.push(MASK);
        rest = after;
    }
    masked + rest
}

fn is_literal(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(MASK)
}

fn is_secret_by_name(name: &str, masked: &str) -> bool {
    is_secret_setting(name) && is_literal(masked)
}

fn looks_secret(text: &str) -> bool {
    let masked = mask_references(text);
    let is_quote = |c: char| c.is_whitespace() || "'\"`".contains(c);
    let words: Vec<&str> = masked.split(is_quote).filter(|word| !word.is_empty()).collect();
    let is_value = |word: &str| is_literal(word) && !word.starts_with('-') && !is_scheme(word);
    words.windows(2).any(|pair| announces_secret(pair[0]) && is_value(pair[1]))
        || words.iter().any(|word| has_password(word))
        || words.iter().flat_map(|word| word.split([';', ',', '&', '?'])).any(is_secret_word)
}

/// Whether the word after this one is a secret: a scheme of credentials, a flag or the name of a header.
fn announces_secret(word: &str) -> bool {
    let is_named = (word.starts_with('-') && is_name(word)) || word.strip_suffix(':').is_some_and(is_name);
    is_scheme(word.rsplit([':', '=']).next().unwrap_or(word)) || (is_named && is_secret_setting(word))
}

/// Whether it is a scheme of credentials, as in `Authorization: Bearer …`.
fn is_scheme(word: &str) -> bool {
    ["bearer", "basic", "token"].iter().any(|scheme| word.eq_ignore_ascii_case(scheme))
}

/// Whether it is an address with a password: `scheme://user:password@host`, `user:password@tcp(host)`.
fn has_password(word: &str) -> bool {
    let address = word.split_once("://").map(|(_, rest)| rest);
    let user = match address {
        Some(rest) => rest.rsplit_once('@').map(|(user, _)| user),
        None => ["@tcp(", "@unix(", "@("].iter().find_map(|host| word.split_once(host)).map(|(user, _)| user),
    };
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, password)| {
        let port = password.split(['/', '?', '#']).next().unwrap_or_default();
        let is_port = port.len() < password.len() && !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
        is_literal(password) && !is_port
    })
}

/// Whether a word without spaces is a token, or gives a secret name a value.
fn is_secret_word(word: &str) -> bool {
    let is_assignment = |separator: char| {
        word.split_once(separator).is_some_and(|(name, value)| {
            is_name(name) && is_secret_setting(name) && is_literal(value) && !value.starts_with('/')
        })
    };
    let is_part = |c: char| "=:@".contains(c) || (c == '/' && word.contains("://"));
    is_assignment('=') || is_assignment(':') || is_token(word) || word.split(is_part).any(is_token)
}

/// Whether it has the form of a generated token.
fn is_token(word: &str) -> bool {
    const PREFIXES: [&str; 10] = ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "AKIA", "AIza", "eyJ", "hf_"];
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "_-+=.".contains(c);
    let has = |test: fn(&char) -> bool| word.chars().any(|c| test(&c));
    let is_random = has(char::is_ascii_digit)
        && (has(char::is_ascii_uppercase) && has(char::is_ascii_lowercase) && word.len() >= 20
            || word.len() >= 32 && word.chars().all(|c| c.is_ascii_hexdigit()));
    is_literal(word)
        && (PREFIXES.iter().any(|prefix| word.starts_with(prefix)) || word.chars().all(is_allowed) && is_random)
}
