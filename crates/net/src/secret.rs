//! Secrets: given by value or by where they are found, read when they are needed, never shown.
//!
//! In: a text, the name of an environment variable or a file. Out: the text, or a header that is marked sensitive, at the moment a request
//! is sent. Debug output shows where a secret is from, and nothing of it.

use std::{
    fmt, fs,
    hash::{Hash, Hasher},
    io::Read,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use hyper::header::HeaderValue;

/// No secret is longer than this; a file that is was named by mistake.
const MAX_LENGTH: u64 = 64 * 1024;

/// Something that is sent and never shown.
///
/// ```
/// use toolhub_net::Secret;
///
/// let token = Secret::env("WEATHER_TOKEN");
/// assert_eq!(format!("{token:?}"), "Secret(env WEATHER_TOKEN)");
/// assert_eq!(format!("{:?}", Secret::plain("hunter2")), "Secret(••••)");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<Source>);

enum Source {
    Literal(String),
    Env(String),
    File(PathBuf, Mutex<Option<CachedFile>>),
}

/// What a file held, and its metadata then.
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

/// Why there is no secret. It says where one was looked for, and nothing of what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The variable is not set.
    #[error("the environment variable {0} is not set, or is no text")]
    NotSet(String),
    /// The file cannot be read.
    #[error("the file {path} cannot be read: {reason}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        reason: String,
    },
    /// There is nothing in it.
    #[error("{0} is empty")]
    Empty(String),
    /// It cannot stand in a request.
    #[error("{0} holds a line break or another character that cannot be sent")]
    Unsendable(String),
}

impl Secret {
    /// The secret itself. Better kept out of programs and configs: see [`Secret::env`] and [`Secret::file`].
    pub fn literal(text: impl Into<String>) -> Self {
        Self(Arc::new(Source::Literal(text.into())))
    }

    /// The secret itself, without white space around it, as it is pasted or read from somewhere.
    pub fn new(text: impl AsRef<str>) -> Self {
        Self::literal(text.as_ref().trim())
    }

    /// What an environment variable holds at the moment it is needed.
    pub fn env(variable: impl Into<String>) -> Self {
        Self(Arc::new(Source::Env(variable.into())))
    }

    /// What a file holds, without white space around it. It is read again when the file has changed.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Arc::new(Source::File(path.into(), Mutex::default())))
    }

    /// The secret, as it is now.
    ///
    /// # Errors
    /// When there is none, or one that cannot be sent in a header.
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
    /// When there is none, or one that cannot be sent in a header.
    pub fn header(&self, prefix: &str) -> Result<HeaderValue, SecretError> {
        let value = HeaderValue::from_str(&format!("{prefix}{}", self.load()?));
        let mut value = value.map_err(|_| SecretError::Unsendable(self.to_string()))?;
        value.set_sensitive(true);
        Ok(value)
    }

    fn load(&self) -> Result<Arc<str>, SecretError> {
        match &*self.0 {
            Source::Literal(text) => Ok(Arc::from(text.as_str())),
            Source::Env(name) => std::env::var(name).map(Arc::from).map_err(|_| SecretError::NotSet(name.clone())),
            Source::File(path, cached) => read_file(path, cached)
                .map_err(|error| SecretError::File { path: path.display().to_string(), reason: error.to_string() }),
        }
    }
}

/// Reads a file, unless its metadata is as it was when it was last read. Asking for metadata takes a microsecond.
fn read_file(path: &PathBuf, cached: &Mutex<Option<CachedFile>>) -> std::io::Result<Arc<str>> {
    let stamp = FileStamp::of(&fs::metadata(path)?);
    let mut cached = cached.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(cached) = cached.as_ref().filter(|cached| cached.stamp == stamp) {
        return Ok(cached.text.clone());
    }
    let file = fs::File::open(path)?;
    // Asked again once it is open: another file may have taken its place.
    let stamp = FileStamp::of(&file.metadata()?);
    let mut text = String::new();
    file.take(MAX_LENGTH + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_LENGTH {
        return Err(std::io::Error::other(format!("it is larger than {MAX_LENGTH} bytes, too large for a secret")));
    }
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

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Source::Literal(_) => f.write_str("••••"),
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

/// Two secrets are the same when they are from the same place.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        match (&*self.0, &*other.0) {
            (Source::Literal(a), Source::Literal(b)) | (Source::Env(a), Source::Env(b)) => a == b,
            (Source::File(a, _), Source::File(b, _)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Secret {}

impl Hash for Secret {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &*self.0 {
            Source::Literal(text) | Source::Env(text) => text.hash(state),
            Source::File(path, _) => path.hash(state),
        }
    }
}
