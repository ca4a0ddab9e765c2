//! The languages in which statuses, reasons and summaries are written.

use serde::{Deserialize, Serialize};

/// The languages in which we explain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Simplified Chinese.
    Chinese,
}
