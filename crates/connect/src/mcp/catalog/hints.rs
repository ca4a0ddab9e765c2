//! Decides which of a server's hints about a tool are believed.
//!
//! In: the `annotations` that the server sent, and what the owner of the hub says. Out: our annotations. Hints of a server that the
//! owner does not trust can make a tool look more dangerous, never less.

use serde_json::Value;
use toolhub_core::Annotations;

/// What the owner of the hub says about one tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerHints {
    /// Whether the server's hints are believed.
    pub(super) trust: bool,
    pub(super) read_only: bool,
    pub(super) idempotent: bool,
}

/// What a server denies about a tool, whatever the owner says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Denials {
    read_only: bool,
    idempotent: bool,
}

impl Denials {
    pub(super) fn read(sent: &Value) -> Self {
        let is_denied = |name: &str| sent.get(name) == Some(&Value::Bool(false));
        Self { read_only: is_denied("readOnlyHint"), idempotent: is_denied("idempotentHint") }
    }

    /// Takes back what the server denies, after the owner has changed `listed` to `own`.
    pub(crate) fn apply(self, listed: &Annotations, own: &mut Annotations) {
        if self.read_only && own.read_only {
            let title = own.title.take();
            *own = Annotations { title, open_world: own.open_world, ..listed.clone() };
        }
        if self.idempotent && !own.read_only {
            own.idempotent = false;
        }
    }
}

/// The effects of a tool; the title is left to the caller. A hint that is not a boolean counts as absent.
pub(super) fn annotations(sent: &Value, owner: OwnerHints) -> Annotations {
    let hint = |name: &str| sent.get(name).and_then(Value::as_bool);
    // A value that reduces caution needs the owner's word, or trust in a server that says so itself.
    let believed = |name: &str, value: bool| owner.trust && hint(name) == Some(value);
    let claimed = |said_by_owner: bool, name: &str| believed(name, true) || said_by_owner && hint(name) != Some(false);
    let read_only = claimed(owner.read_only, "readOnlyHint");
    Annotations {
        title: None,
        read_only,
        destructive: !read_only && !believed("destructiveHint", false),
        idempotent: read_only || claimed(owner.idempotent, "idempotentHint"),
        open_world: !believed("openWorldHint", false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HINTS: [&str; 4] = ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"];

    /// The annotations as one letter each, upper case if set: read-only, destructive, idempotent, open world.
    fn letters(sent: &Value, owner: OwnerHints) -> String {
        let Annotations { read_only, destructive, idempotent, open_world, .. } = annotations(sent, owner);
        let set = [('r', read_only), ('d', destructive), ('i', idempotent), ('o', open_world)];
        set.map(|(letter, is_set)| if is_set { letter.to_ascii_uppercase() } else { letter }).iter().collect()
    }

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read best as plain values")]
    fn check(sent: Value, owner: &str, untrusted: &str, trusted: &str) {
        let says = |trust| OwnerHints { trust, read_only: owner.contains('r'), idempotent: owner.contains('i') };
        assert_eq!((letters(&sent, says(false)).as_str(), letters(&sent, says(true)).as_str()), (untrusted, trusted));
    }

    #[test]
    fn an_untrusted_server_can_only_tighten() {
        check(json!({}), "", "rDiO", "rDiO");
        check(json!({"readOnlyHint": true}), "", "rDiO", "RdIO");
        check(json!({"destructiveHint": false, "openWorldHint": false}), "", "rDiO", "rdio");
        check(json!({"idempotentHint": true}), "", "rDiO", "rDIO");
        check(json!({}), "r", "RdIO", "RdIO");
        check(json!({"readOnlyHint": true}), "r", "RdIO", "RdIO");
        check(json!({"readOnlyHint": false}), "r", "rDiO", "rDiO");
        check(json!({}), "i", "rDIO", "rDIO");
        check(json!({"idempotentHint": false}), "i", "rDiO", "rDiO");
        check(json!({"readOnlyHint": "true", "openWorldHint": 0}), "", "rDiO", "rDiO");
        check(json!(null), "r", "RdIO", "RdIO");
        check(json!([true]), "", "rDiO", "rDiO");
    }

    #[test]
    fn an_owner_cannot_take_back_what_the_server_denies() {
        let after = |sent: Value, change: fn(&mut Annotations)| {
            let listed = annotations(&sent, OwnerHints { trust: false, read_only: false, idempotent: false });
            let mut own = listed.clone();
            change(&mut own);
            Denials::read(&sent).apply(&listed, &mut own);
            (own.read_only, own.destructive, own.idempotent)
        };
        let read_only: fn(&mut Annotations) =
            |own| (own.read_only, own.destructive, own.idempotent) = (true, false, true);
        assert_eq!(after(json!({}), read_only), (true, false, true));
        assert_eq!(after(json!({"readOnlyHint": true}), read_only), (true, false, true));
        assert_eq!(after(json!({"readOnlyHint": false}), read_only), (false, true, false));
        assert_eq!(after(json!({"idempotentHint": false}), |own| own.idempotent = true), (false, true, false));
        assert_eq!(after(json!({"readOnlyHint": false}), |own| own.idempotent = true), (false, true, true));
    }

    #[test]
    fn no_combination_of_hints_loosens_an_untrusted_tool() {
        for owner in ["", "r", "i", "ri"] {
            let says = OwnerHints { trust: false, read_only: owner.contains('r'), idempotent: owner.contains('i') };
            let without = annotations(&json!({}), says);
            for combination in 0..81_u32 {
                let value = |index: u32| [None, Some(true), Some(false)][(combination / 3_u32.pow(index) % 3) as usize];
                let sent: serde_json::Map<String, Value> = (0..)
                    .zip(HINTS)
                    .filter_map(|(index, name)| Some((name.to_owned(), value(index)?.into())))
                    .collect();
                let with = annotations(&sent.into(), says);
                assert!(with.read_only <= without.read_only && with.idempotent <= without.idempotent);
                assert!(with.destructive >= without.destructive && with.open_world >= without.open_world);
            }
        }
    }
}
