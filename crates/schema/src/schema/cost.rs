//! Estimates the cost of building validation errors, so that they are built only if the cost is bounded.
//!
//! In: a schema that passed the limits, and arguments. Out: whether building the errors is affordable.
//! The validator collects the errors of every branch of a union, of every union inside it, and copies the value
//! into each; for recursive schemas this grows exponentially with the depth of the arguments. The cost of the estimate
//! itself is at most the product of both sizes, because it is memoized, and it stops at a limit.

use std::collections::HashMap;

use serde_json::Value;

use super::refs::{AppliesTo, RefResolver, Subschema, references, subschemas};

/// Maximum cost in steps; measured to take about 25 ms in a release build.
pub(super) const MAX_COST: u64 = 30_000;

/// Whether building the errors costs at most [`MAX_COST`].
pub(super) fn is_affordable(schema: &Value, refs: &RefResolver<'_>, arguments: &Value) -> bool {
    let mut estimator = CostEstimator { refs, memo: HashMap::new() };
    estimator.cost(schema, arguments, false) <= MAX_COST
}

struct CostEstimator<'a> {
    refs: &'a RefResolver<'a>,
    /// Steps by schema node, value node, and whether errors copy the value.
    memo: HashMap<(usize, usize, bool), u64>,
}

impl CostEstimator<'_> {
    fn cost(&mut self, schema: &Value, value: &Value, copied: bool) -> u64 {
        let key = (node_id(schema), node_id(value), copied);
        if let Some(steps) = self.memo.get(&key) {
            return *steps;
        }
        // The estimate itself must not become an attack: it never visits more nodes than the maximum cost.
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
            let additional = match part.applies {
                AppliesTo::Nothing => 0,
                AppliesTo::SameValue => self.cost(part.schema, value, copied),
                // Each branch is validated before its errors are built; that walks the value once,
                // which the charge for its copies covers.
                AppliesTo::Branch => self.cost(part.schema, value, true),
                AppliesTo::Child => self.children_cost(&part, value, copied),
            };
            steps = steps.saturating_add(additional);
        }
        self.memo.insert(key, steps);
        steps
    }

    /// One step for the schema, and one for each error it may report about this value itself.
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

/// The cost of copying a value, in steps; counting stops above the maximum.
fn copy_cost(value: &Value) -> u64 {
    let mut size = 0;
    let mut pending = vec![value];
    while let Some(value) = pending.pop() {
        size += 1;
        match value {
            Value::String(text) => size += text.len() as u64 / 1024,
            Value::Array(items) => pending.extend(items),
            Value::Object(members) => pending.extend(members.values()),
            _ => {}
        }
        if size > MAX_COST {
            break;
        }
    }
    size
}

/// The address of a value, which identifies it while its document is borrowed.
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

    /// A small recursive union: the validator's errors double, twice, with each level of the arguments.
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
        let mut estimator = CostEstimator { refs: &refs, memo: HashMap::new() };
        let members = (0..20_000).map(|index| (format!("p{index}"), nested(5)));
        let wide: Value = members.collect::<serde_json::Map<_, _>>().into();
        assert!(estimator.cost(&schema, &wide, false) > MAX_COST);
        assert!(estimator.memo.len() as u64 <= MAX_COST + 1, "{}", estimator.memo.len());
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
        let union = |branches| json!({"type": "object", "properties": {"x": {"anyOf": vec![json!({"type": "string"}); branches]}}});
        let large = json!({"x": vec![1; 1_000]});
        check(&union(3), &large, true);
        check(&union(100), &large, false);
    }
}
