//! Estimates the work of building errors, so that it is done only when it is small.
//!
//! In: a schema that passed the limits, and arguments. Out: whether we can afford to have it explained.
//! The engine collects the errors of every form of a choice, of every choice inside it, and copies the value
//! into each; for recursive schemas that grows exponentially with the depth of the arguments. The estimate
//! itself grows only with the product of both sizes, because it remembers, and stops at its own limit.

use std::collections::HashMap;

use serde_json::Value;

use super::refs::{AppliesTo, RefResolver, Subschema, references, subschemas};

/// So many steps were measured to take about 25 ms in a release build.
pub(super) const MAX_COST: u64 = 30_000;

/// Whether building the errors costs no more than we can afford.
pub(super) fn is_affordable(schema: &Value, refs: &RefResolver<'_>, arguments: &Value) -> bool {
    let mut count = CostEstimator { refs, memo: HashMap::new() };
    count.cost(schema, arguments, false) <= MAX_COST
}

struct CostEstimator<'a> {
    refs: &'a RefResolver<'a>,
    /// Steps by place of the schema, place of the value, and whether errors copy the value.
    memo: HashMap<(usize, usize, bool), u64>,
}

impl CostEstimator<'_> {
    fn cost(&mut self, schema: &Value, value: &Value, copied: bool) -> u64 {
        let key = (node_id(schema), node_id(value), copied);
        if let Some(steps) = self.memo.get(&key) {
            return *steps;
        }
        // The estimate must not become the attack: it never looks at more than it could allow.
        if self.memo.len() as u64 > MAX_COST {
            return MAX_COST + 1;
        }
        self.memo.insert(key, 1);
        let mut steps = self.own_cost(schema, value, copied);
        for target in references(schema).filter_map(|reference| self.refs.resolve(reference)) {
            steps = steps.saturating_add(self.cost(target, value, copied));
        }
        for part in subschemas(schema) {
            if steps > MAX_COST {
                break;
            }
            let more = match part.applies {
                AppliesTo::Nothing => 0,
                AppliesTo::SameValue => self.cost(part.schema, value, copied),
                // Each form is tried before its errors are built; that walks the value once,
                // which is what its copies are charged for anyway.
                AppliesTo::Branch => self.cost(part.schema, value, true),
                AppliesTo::Child => self.children_cost(&part, value, copied),
            };
            steps = steps.saturating_add(more);
        }
        self.memo.insert(key, steps);
        steps
    }

    /// One step for the schema, one for each error it may report about this value itself.
    fn own_cost(&self, schema: &Value, value: &Value, copied: bool) -> u64 {
        let required = schema.get("required").and_then(Value::as_array);
        let errors = 1 + required.map_or(0, Vec::len) as u64;
        if copied { errors.saturating_mul(copy_cost(value)) } else { errors }
    }

    fn children_cost(&mut self, part: &Subschema<'_>, value: &Value, copied: bool) -> u64 {
        let mut steps = 0_u64;
        let mut add = |value: &Value| {
            if steps <= MAX_COST {
                steps = steps.saturating_add(self.cost(part.schema, value, copied));
            }
        };
        match (value, part.keyword, part.name) {
            (Value::Object(members), "properties", Some(name)) => {
                members.get(name).into_iter().for_each(add);
            }
            (Value::Object(members), ..) => members.values().for_each(add),
            (Value::Array(items), ..) => items.iter().for_each(&mut add),
            _ => {}
        }
        steps
    }
}

/// What copying a value costs, in steps; more than we can afford is as good as endless.
fn copy_cost(value: &Value) -> u64 {
    let mut size = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        size += 1;
        match value {
            Value::String(text) => size += text.len() as u64 / 1024,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
        if size > MAX_COST {
            break;
        }
    }
    size
}

fn node_id(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(schema: &Value, arguments: &Value, expected: bool) {
        assert_eq!(is_affordable(schema, &RefResolver::new(schema), arguments), expected);
    }

    /// A small recursive choice: the engine's errors double, twice, with each level of the arguments.
    fn hostile() -> Value {
        json!({"type": "object", "required": ["b"], "additionalProperties": {"anyOf": [
            {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}]}})
    }

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!({}), |inner, _| json!({"a": inner}))
    }

    #[test]
    fn recursive_choices_are_affordable_only_for_flat_arguments() {
        check(&hostile(), &nested(1), true);
        check(&hostile(), &nested(8), false);
        check(&hostile(), &nested(60), false);
    }

    #[test]
    fn the_estimate_itself_takes_no_more_steps_than_it_could_allow() {
        let schema = hostile();
        let refs = RefResolver::new(&schema);
        let mut count = CostEstimator { refs: &refs, memo: HashMap::new() };
        let wide: Value = (0..20_000).map(|at| (format!("p{at}"), nested(5))).collect::<serde_json::Map<_, _>>().into();
        assert!(count.cost(&schema, &wide, false) > MAX_COST);
        assert!(count.memo.len() as u64 <= MAX_COST + 1, "{}", count.memo.len());
    }

    #[test]
    fn an_honest_tree_is_affordable_even_when_it_is_deep() {
        let child = json!({"anyOf": [{"$ref": "#"}, {"type": "null"}]});
        let tree = json!({"type": "object", "properties": {"a": child, "b": child}, "required": ["n"]});
        check(&tree, &nested(40), true);
    }

    #[test]
    fn usual_arguments_are_affordable_and_endless_lists_are_not() {
        let lines = json!({"type": "object", "properties": {"lines": {"items": {
            "type": "object", "properties": {"qty": {"type": "integer"}}, "required": ["qty"]}}}});
        check(&lines, &json!({"lines": vec![json!({"qty": "x"}); 1_000]}), true);
        check(&lines, &json!({"lines": vec![json!({"qty": "x"}); 50_000]}), false);
    }

    #[test]
    fn a_choice_over_a_large_value_pays_for_its_copies() {
        let choice =
            |forms| json!({"type": "object", "properties": {"x": {"anyOf": vec![json!({"type": "string"}); forms]}}});
        let large = json!({"x": vec![1; 1_000]});
        check(&choice(3), &large, true);
        check(&choice(100), &large, false);
    }
}
