//! The states a call has taken out, waiting to be put back.
//!
//! In: values parked here when the tool lets go of them. Out: the writes that make them durable, each expecting the
//! version that was read.

use std::sync::{Arc, Mutex, PoisonError};

use smol_str::SmolStr;

use crate::{
    backend::{Change, Durability, Expect, Table, Write},
    error::ToolError,
};

/// The states one call has taken out.
#[derive(Default)]
pub(crate) struct Desk(Mutex<Vec<Sheet>>);

/// One state that was taken out.
pub(crate) struct Sheet {
    pub(crate) id: SmolStr,
    pub(crate) expect: Expect,
    pub(crate) schema: u32,
    pub(crate) parked: Arc<dyn Parked>,
}

/// A state the tool has let go of.
pub(crate) trait Parked: Send + Sync {
    /// The bytes to store; `None` when nothing was changed.
    fn changed(&self) -> Result<Option<Vec<u8>>, ToolError>;
}

impl Desk {
    /// Notes that a state was taken out.
    pub(crate) fn put(&self, sheet: Sheet) -> Result<(), ToolError> {
        let mut sheets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sheets.iter().any(|other| other.id == sheet.id) {
            let text = format!("the state `{}` was asked for twice in one call", sheet.id);
            return Err(ToolError::hidden(crate::error::ErrorKind::Internal, text));
        }
        sheets.push(sheet);
        Ok(())
    }

    /// The writes that make the changes durable.
    pub(crate) fn writes(&self) -> Result<Vec<Write>, ToolError> {
        let sheets = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut writes = Vec::new();
        for sheet in sheets {
            let Some(bytes) = sheet.parked.changed()? else { continue };
            writes.push(Write {
                table: Table::State,
                id: sheet.id,
                expect: sheet.expect,
                change: Change::Put { value: bytes.into(), schema: sheet.schema, expires: None },
                durability: Durability::PowerSafe,
            });
        }
        Ok(writes)
    }
}
