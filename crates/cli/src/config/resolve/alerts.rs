//! Resolves `[[alerts]]`.
//!
//! In: the targets as written. Out: plain settings that can be compared on a reload, and the targets of a hub from them.

use std::time::Duration;

use toolhub::{
    Glob,
    alerts::{AlertTarget, Condition, ErrorRate},
    config::SecretText,
    ids::Tenant,
    units,
    webhooks::{Format, SigningSecret, Webhook, WebhookError},
};

use super::{
    super::{
        raw::{self, RawConfig},
        tree::Path,
    },
    Diagnostics,
};

/// A target of alerts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alert {
    name: String,
    url: SecretText,
    secrets: Vec<SecretText>,
    format: Format,
    on: Vec<Condition>,
    tool: Option<Glob>,
    tenant: Option<Tenant>,
    hold: Option<Duration>,
    repeat: Duration,
    resolved: bool,
    allow_hosts: Vec<String>,
    errors: ErrorRate,
    key_expiry: Duration,
}

const SECRET_HELP: &str =
    "write secret = { env = \"ALERT_SECRET\" }; `echo whsec_$(openssl rand -base64 32)` prints a new one";

/// The settings that only one condition uses.
const OF_ERRORS: [&str; 3] = ["rate", "window", "minimum"];

pub(super) fn resolve(raw: &RawConfig, diagnostics: &mut Diagnostics<'_>) -> Vec<Alert> {
    let mut alerts: Vec<Alert> = Vec::new();
    for (index, target) in raw.alerts.iter().enumerate() {
        let at = Path::of(["alerts"]).index(index);
        if raw.alerts[..index].iter().any(|other| other.name == target.name) {
            let message = format!("there are two alert targets named `{}`", target.name);
            diagnostics.report(&at.key("name"), message, "give each target a name of its own");
        }
        alerts.extend(resolve_target(target, &at, diagnostics));
    }
    alerts
}

fn resolve_target(raw: &raw::Alert, at: &Path, diagnostics: &mut Diagnostics<'_>) -> Option<Alert> {
    let before = diagnostics.problems().len();
    let is_name = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-');
    if !raw.name.chars().all(is_name) {
        let message = format!("{} is not a name of letters, digits, `_` and `-`", units::ellipsize(&raw.name));
        diagnostics.report(&at.key("name"), message, "choose a short name, such as \"ops\"");
    }
    let url = raw.url.fetch(&at.key("url"), diagnostics);
    let secrets = resolve_secrets(raw, at, diagnostics);
    let tool = raw.tool.as_ref().and_then(|glob| {
        let glob = Glob::new(glob.as_str());
        glob.map_err(|error| {
            diagnostics.report(&at.key("tool"), error, "write a glob over tool names, such as \"pay__*\"");
        })
        .ok()
    });
    if raw.tool.is_some() && !raw.on.iter().any(|condition| condition.is_about_tools()) {
        let message = "`tool` has no effect: none of the conditions in `on` is about tools";
        diagnostics.report(&at.key("tool"), message, "remove it, or add \"tool.status\" to `on`");
    }
    let tenant = raw.tenant.as_ref().and_then(|tenant| {
        let tenant = Tenant::new(tenant.as_str());
        tenant.map_err(|error| diagnostics.report(&at.key("tenant"), error.to_string(), "omit it for all tenants")).ok()
    });
    let (hold, repeat) = (raw.hold.map(|time| time.0), raw.repeat.0);
    if hold.is_some_and(|hold| hold > repeat) {
        let message = "`hold` is longer than `repeat`: the first message would come after the second";
        diagnostics.report(
            &at.key("hold"),
            message,
            "write a `hold` of minutes and a `repeat` of hours, such as \"5m\" and \"4h\"",
        );
    }
    report_unused(raw, at, diagnostics);
    if let Some(url) = &url {
        check_address(raw, url, at, diagnostics);
    }
    if diagnostics.problems().len() > before {
        return None;
    }
    let defaults = ErrorRate::default();
    Some(Alert {
        name: raw.name.clone(),
        url: url?,
        secrets,
        format: raw.format,
        on: raw.on.clone(),
        tool,
        tenant,
        hold,
        repeat,
        resolved: raw.resolved,
        allow_hosts: raw.allow_hosts.clone(),
        errors: ErrorRate {
            rate: raw.rate.unwrap_or(defaults.rate),
            window: raw.window.map_or(defaults.window, |time| time.0),
            minimum: raw.minimum.map_or(defaults.minimum, u64::from),
        },
        key_expiry: raw.expires_within.map_or(AlertTarget::DEFAULT_KEY_EXPIRY, |time| time.0),
    })
}

fn resolve_secrets(raw: &raw::Alert, at: &Path, diagnostics: &mut Diagnostics<'_>) -> Vec<SecretText> {
    if raw.format == Format::Json && raw.secret.is_none() {
        let message =
            format!("the alert target `{}` has no `secret`, which the format `json` needs to sign messages", raw.name);
        diagnostics.report(at, message, SECRET_HELP);
    }
    if raw.previous_secret.is_some() && raw.secret.is_none() {
        let key = at.key("previous_secret");
        diagnostics.report(
            &key,
            "`previous_secret` has no effect without `secret`",
            "write the new secret as `secret`",
        );
    }
    let mut secrets = Vec::new();
    for (name, source) in [("secret", &raw.secret), ("previous_secret", &raw.previous_secret)] {
        let key = at.key(name);
        let Some(text) = source.as_ref().and_then(|source| source.fetch(&key, diagnostics)) else { continue };
        match text.reveal().parse::<SigningSecret>() {
            Ok(_) => secrets.push(text),
            Err(error) => diagnostics.report(&key, format!("`{key}` cannot sign: {error}"), SECRET_HELP),
        }
    }
    secrets
}

/// Reports settings of conditions that are not in `on`.
fn report_unused(raw: &raw::Alert, at: &Path, diagnostics: &mut Diagnostics<'_>) {
    let unused = OF_ERRORS.iter().map(|key| (*key, Condition::ErrorsHigh));
    for (key, condition) in unused.chain([("expires_within", Condition::KeyExpiring)]) {
        let path = at.key(key);
        if diagnostics.is_set(&path) && !raw.on.contains(&condition) {
            let message = format!("`{path}` has no effect without \"{condition}\" in `on`");
            diagnostics.report(&path, message, format!("add \"{condition}\" to `on`, or remove it"));
        }
    }
}

fn check_address(raw: &raw::Alert, url: &SecretText, at: &Path, diagnostics: &mut Diagnostics<'_>) {
    let key = at.key("url");
    match webhook(raw.format, url, &[], &raw.allow_hosts) {
        Err(error) => diagnostics.report(
            &key,
            format!("`{key}` cannot be used: {error}"),
            "write e.g. https://hooks.example/alerts",
        ),
        Ok(webhook) => {
            if let Some((host, range)) = webhook.refused_host() {
                let message = format!("the host of `{key}`, {host}, is {range}");
                diagnostics.report(&key, message, format!("add allow_hosts = [\"{host}\"]"));
            }
        }
    }
}

fn webhook(
    format: Format,
    url: &SecretText,
    secrets: &[SecretText],
    allow_hosts: &[String],
) -> Result<Webhook, WebhookError> {
    let webhook = Webhook::new(format, url.reveal())?;
    let webhook = secrets.iter().try_fold(webhook, |webhook, secret| webhook.signed_with(secret.reveal()))?;
    Ok(allow_hosts.iter().fold(webhook, Webhook::allow_host))
}

impl Alert {
    /// The target of a hub; `None` if its settings are invalid, which the config rules out.
    pub(crate) fn target(&self) -> Option<AlertTarget> {
        let webhook = webhook(self.format, &self.url, &self.secrets, &self.allow_hosts).ok()?;
        let target = AlertTarget::new(self.name.as_str(), webhook)
            .on(self.on.iter().copied())
            .tools(self.tool.clone())
            .repeat(self.repeat)
            .resolved(self.resolved)
            .error_rate(self.errors)
            .key_expiry(self.key_expiry);
        let target = self.hold.into_iter().fold(target, AlertTarget::hold);
        Some(self.tenant.clone().into_iter().fold(target, AlertTarget::tenant))
    }
}
