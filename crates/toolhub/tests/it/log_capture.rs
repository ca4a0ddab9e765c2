//! Captures the log lines of a test.

use std::{
    cell::RefCell,
    fmt::{self, Write as _},
};

use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Captures the log lines of this thread from now on. The returned function takes those since its last call. For tests on one
/// thread.
pub(crate) fn start() -> impl Fn() -> Vec<String> {
    // An error says that another test has set it already.
    let _ = tracing::subscriber::set_global_default(LogCapture);
    CAPTURED_LINES.set(Some(Vec::new()));
    || CAPTURED_LINES.with_borrow_mut(|lines| lines.as_mut().map(std::mem::take).unwrap_or_default())
}

/// Captures the log lines of the thread that wants them. The subscriber is global: with a thread-local one, a callsite that another thread
/// registered first, without a subscriber, would stay disabled.
struct LogCapture;

thread_local! {
    /// `None` on threads of other tests, some of which count allocated memory.
    static CAPTURED_LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// One log line: the fields in the order they were recorded.
struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for LogCapture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("toolhub")
    }
    fn event(&self, event: &Event<'_>) {
        CAPTURED_LINES.with_borrow_mut(|lines| {
            let Some(lines) = lines else { return };
            let mut line = LogLine(event.metadata().level().to_string());
            event.record(&mut line);
            lines.push(line.0);
        });
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
