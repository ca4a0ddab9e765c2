//! Secrets: given literally or by source, resolved when needed, redacted in output.
//!
//! In: a text, the name of an environment variable or a file. Out: the text, or a header that is marked sensitive, when a request
//! is sent. Debug output shows the source of a secret, never its value.

use std::{
    fmt, fs,
    hash::{Hash, Hasher},
    io::Read,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use hyper::header::HeaderValue;

use crate::secret_text::SecretText;

/// No secret is longer than this; a longer file was configured by mistake.
const MAX_LENGTH: u64 = 64 * 1024;

/// A credential that is sent but never displayed.
///
/// ```
/// use toolhub_net::Secret;
///
/// let token = Secret::env("WEATHER_TOKEN");
/// assert_eq!(format!("{token:?}"), "Secret(env WEATHER_TOKEN)");
/// assert_eq!(format!("{:?}", Secret::literal("hunter2")), "Secret(••••)");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<Source>);

enum Source {
    Literal(SecretText),
    Env(String),
    File(PathBuf, Mutex<Option<CachedFile>>),
}

/// The content of a file, and its metadata when it was read.
struct CachedFile {
    stamp: FileStamp,
    text: Arc<str>,
}

/// Metadata that changes with the content.
#[derive(PartialEq, Eq)]
struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

/// Why a secret cannot be used. Names the source, never the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set or not valid UTF-8.
    #[error("the environment variable {0} is not set or is not valid UTF-8")]
    NotSet(String),
    /// The file cannot be read.
    #[error("the file {path} cannot be read: {reason}")]
    File {
        /// The path of the file.
        path: String,
        /// The I/O error.
        reason: String,
    },
    /// The secret is empty.
    #[error("{0} is empty")]
    Empty(String),
    /// The secret cannot be sent in a header.
    #[error("{0} contains a line break or another character that is not allowed in a header")]
    Unsendable(String),
}

impl Secret {
    /// A secret given literally. Prefer [`Secret::env`] and [`Secret::file`], which keep it out of code and config.
    pub fn literal(text: impl Into<Arc<str>>) -> Self {
        SecretText::new(text).into()
    }

    /// A secret given literally, trimmed: for pasted input.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::literal(text.as_ref().trim())
    }

    /// The value of an environment variable, read when it is needed.
    pub fn env(variable: impl Into<String>) -> Self {
        Self(Arc::new(Source::Env(variable.into())))
    }

    /// The trimmed content of a file. Read again when the file has changed.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Source::File(path.into(), Mutex::default())))
    }

    /// The current value of the secret.
    ///
    /// # Errors
    /// When it is missing, empty or cannot be sent in a header.
    pub fn read(&self) -> Result<Arc<str>, SecretError> {
        match self.load()? {
            text if text.is_empty() => Err(SecretError::Empty(self.to_string())),
            text if text.chars().any(char::is_control) => Err(SecretError::Unsendable(self.to_string())),
            text => Ok(text),
        }
    }

    /// The secret after a prefix such as `Bearer `, as the value of a header that debug output does not show.
    ///
    /// # Errors
    /// When it is missing or cannot be sent in a header.
    pub fn header(&self, prefix: &str) -> Result<HeaderValue, SecretError> {
        let value = HeaderValue::from_str(&format!("{prefix}{}", self.load()?));
        let mut value = value.map_err(|_| SecretError::Unsendable(self.to_string()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Like [`Self::read`], but the secret may be empty or have several lines.
    ///
    /// # Errors
    /// When it is missing.
    pub fn load(&self) -> Result<Arc<str>, SecretError> {
        match &*self.0 {
            Source::Literal(text) => Ok(text.clone().into()),
            Source::Env(name) => std::env::var(name).map(Arc::from).map_err(|_| SecretError::NotSet(name.clone())),
            Source::File(path, cached) => read_file(path, cached)
                .map_err(|error| SecretError::File { path: path.display().to_string(), reason: error.to_string() }),
        }
    }
}

/// Reads a file unless its metadata is unchanged since the last read. A metadata call takes about a microsecond.
fn read_file(path: &PathBuf, cached: &Mutex<Option<CachedFile>>) -> std::io::Result<Arc<str>> {
    let stamp = FileStamp::of(&fs::metadata(path)?);
    let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cached) = cached.as_ref().filter(|cached| cached.stamp == stamp) {
        return Ok(cached.text.clone());
    }
    let file = fs::File::open(path)?;
    // Taken from the open file: it may have been replaced since the first metadata call.
    let stamp = FileStamp::of(&file.metadata()?);
    let mut bytes = Vec::new();
    file.take(MAX_LENGTH + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LENGTH {
        return Err(std::io::Error::other(format!("it is larger than {MAX_LENGTH} bytes, too large for a secret")));
    }
    let text = str::from_utf8(&bytes).map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
    let text: Arc<str> = Arc::from(text.trim());
    *cached = Some(CachedFile { stamp, text: text.clone() });
    Ok(text)
}

impl FileStamp {
    fn of(file: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt;
        Self { modified: file.modified().ok(), length: file.len(), inode: file.ino() }
    }
}

impl From<SecretText> for Secret {
    fn from(text: SecretText) -> Self {
        Self(Arc::new(Source::Literal(text)))
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Source::Literal(_) => f.write_str(SecretText::MASK),
            Source::Env(name) => write!(f, "env {name}"),
            Source::File(path, _) => write!(f, "file {}", path.display()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

/// Secrets are equal if they have the same source.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        match (&*self.0, &*other.0) {
            (Source::Literal(a), Source::Literal(b)) => a == b,
            (Source::Env(a), Source::Env(b)) => a == b,
            (Source::File(a, _), Source::File(b, _)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Secret {}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &*self.0 {
            Source::Literal(text) => text.hash(state),
            Source::Env(name) => name.hash(state),
            Source::File(path, _) => path.hash(state),
        }
    }
}
