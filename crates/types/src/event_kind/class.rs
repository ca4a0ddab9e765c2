//! Classes of events, by how many there are: a subscriber that wants few of them must not make the hub build all others.

use super::EventKind;

/// A class of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    /// What single calls do: several events per call.
    Calls,
    /// What models write, piece by piece.
    Messages,
    /// `metrics.tick`, which only those get that name it.
    Ticks,
    /// All others: they are rare.
    Other,
}

impl EventClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Calls, Self::Messages, Self::Ticks, Self::Other];

    /// The class of the events with this name.
    #[must_use]
    pub fn of(name: &str) -> Self {
        match name {
            "tool.executed" | "tool.failed" => Self::Calls,
            "metrics.tick" => Self::Ticks,
            name if name.starts_with("tool.execution.") || name.starts_with("call.") => Self::Calls,
            name if name.starts_with("message.") => Self::Messages,
            _ => Self::Other,
        }
    }
}

/// A set of classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventClasses([bool; EventClass::ALL.len()]);

impl EventClasses {
    /// All classes but [`Ticks`](EventClass::Ticks).
    pub const DEFAULT: Self = Self([true, true, false, true]);

    /// The classes of all events whose names match.
    #[must_use]
    pub fn matching(is_match: impl Fn(&str) -> bool) -> Self {
        let mut classes = Self([false; EventClass::ALL.len()]);
        for name in EventKind::NAMES.iter().filter(|name| is_match(name)) {
            classes.0[EventClass::of(name) as usize] = true;
        }
        classes
    }

    /// Whether the class is in the set.
    #[must_use]
    pub const fn contains(self, class: EventClass) -> bool {
        self.0[class as usize]
    }

    /// Its classes.
    pub fn iter(self) -> impl Iterator<Item = EventClass> {
        EventClass::ALL.into_iter().filter(move |class| self.contains(*class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_classes_of_the_names_it_was_made_of() {
        assert_eq!(EventClasses::matching(|name| name != "metrics.tick"), EventClasses::DEFAULT);
        let approvals: Vec<_> = EventClasses::matching(|name| name.starts_with("approval.")).iter().collect();
        assert_eq!(approvals, [EventClass::Other]);
        let of_calls = EventKind::NAMES.iter().filter(|name| EventClass::of(name) == EventClass::Calls).count();
        assert_eq!(of_calls, 7, "started, completed, failed, executed, failed, progress, log");
    }
}
