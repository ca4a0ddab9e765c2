//! Refuses schemas whose references expand exponentially: a few lines that would take years to validate.
//!
//! In: a self-contained document. Out: success, or the exceeded limit.
//! The validator repeats the work behind a `$ref` for each path that leads to it, except for cycles
//! through properties or items, which it caches. This file counts the repeated work.

use std::collections::HashMap;

use serde_json::Value;

use super::{
    SchemaError,
    refs::{AppliesTo, RefResolver, references, subschemas},
};

/// Distinct targets of references; the validator's recursion depth grows with them.
const MAX_REF_TARGETS: usize = 256;
/// Subschemas after each `$ref` is replaced by its target.
const MAX_EXPANDED_SUBSCHEMAS: usize = 50_000;
/// Subschemas that apply to the same value.
const MAX_SUBSCHEMAS_PER_VALUE: usize = 2_000;
/// Nested subschemas that apply to the same value: the validator's recursion depth is this times the depth of the
/// arguments.
const MAX_NESTED_COMBINATIONS: usize = 16;

pub(super) fn check_references(root: &Value, refs: &RefResolver<'_>) -> Result<(), SchemaError> {
    let graph = RefGraph::new(root, refs)?;
    let mut per_value = PerValueCost { refs, memo: HashMap::new() };
    for target in &graph.targets {
        for schema in reachable_subschemas(target) {
            per_value.measure(schema, 0)?;
        }
    }
    if graph.expanded_size() > MAX_EXPANDED_SUBSCHEMAS {
        return Err(SchemaError::TooComplex {
            what: "too many subschemas once each `$ref` is followed",
            limit: MAX_EXPANDED_SUBSCHEMAS,
        });
    }
    Ok(())
}

/// A schema and everything inside it, without the definitions that only a reference reaches.
fn reachable_subschemas(schema: &Value) -> Vec<&Value> {
    let mut found = vec![schema];
    let mut next = 0;
    while let Some(schema) = found.get(next).copied() {
        let parts = subschemas(schema).into_iter();
        found.extend(parts.filter(|part| part.applies != AppliesTo::Nothing).map(|part| part.schema));
        next += 1;
    }
    found
}

/// The graph of references. The root is the first target.
struct RefGraph<'a> {
    targets: Vec<&'a Value>,
    sizes: Vec<usize>,
    /// For each target, the targets of all references in its body, with repetitions.
    edges: Vec<Vec<usize>>,
}

impl<'a> RefGraph<'a> {
    fn new(root: &'a Value, refs: &RefResolver<'a>) -> Result<Self, SchemaError> {
        let mut graph = Self { targets: vec![root], sizes: Vec::new(), edges: Vec::new() };
        let mut indices = HashMap::from([(node_id(root), 0)]);
        while let Some(from) = graph.targets.get(graph.edges.len()).copied() {
            let body = reachable_subschemas(from);
            let mut edges = Vec::new();
            for reference in body.iter().flat_map(|schema| references(schema)) {
                let unresolved = || SchemaError::UnresolvedRef(reference.to_owned());
                let target = refs.resolve(reference).ok_or_else(unresolved)?;
                let index = *indices.entry(node_id(target)).or_insert(graph.targets.len());
                if index == graph.targets.len() {
                    graph.targets.push(target);
                }
                edges.push(index);
            }
            if graph.targets.len() > MAX_REF_TARGETS {
                return Err(SchemaError::TooComplex {
                    what: "too many different `$ref` targets",
                    limit: MAX_REF_TARGETS,
                });
            }
            graph.sizes.push(body.len());
            graph.edges.push(edges);
        }
        Ok(graph)
    }

    /// The number of subschemas from the root after each `$ref` outside a cycle is expanded.
    fn expanded_size(&self) -> usize {
        let reachable: Vec<Vec<bool>> = (0..self.targets.len()).map(|from| self.reachable_from(from)).collect();
        self.expanded_size_from(0, &reachable, &mut vec![None; self.targets.len()])
    }

    fn expanded_size_from(&self, target: usize, reachable: &[Vec<bool>], memo: &mut [Option<usize>]) -> usize {
        if let Some(size) = memo[target] {
            return size;
        }
        let mut size = self.sizes[target];
        for &next in &self.edges[target] {
            let is_cycle = reachable[next][target];
            let expanded = if is_cycle { 1 } else { self.expanded_size_from(next, reachable, memo) };
            size = size.saturating_add(expanded);
        }
        memo[target] = Some(size);
        size
    }

    fn reachable_from(&self, from: usize) -> Vec<bool> {
        let mut seen = vec![false; self.targets.len()];
        seen[from] = true;
        let mut pending = vec![from];
        while let Some(target) = pending.pop() {
            for &next in &self.edges[target] {
                if !std::mem::replace(&mut seen[next], true) {
                    pending.push(next);
                }
            }
        }
        seen
    }
}

/// Measures how many subschemas apply to one value, and how deeply they are nested.
struct PerValueCost<'a> {
    refs: &'a RefResolver<'a>,
    /// `None` while the schema is being measured: visiting it again then means a cycle.
    memo: HashMap<usize, Option<(usize, usize)>>,
}

impl PerValueCost<'_> {
    fn measure(&mut self, schema: &Value, depth: usize) -> Result<(usize, usize), SchemaError> {
        match self.memo.get(&node_id(schema)) {
            Some(Some(measured)) => return Ok(*measured),
            Some(None) => return Err(circular_ref(schema)),
            None => {}
        }
        if depth > MAX_NESTED_COMBINATIONS {
            return Err(too_deep());
        }
        self.memo.insert(node_id(schema), None);
        let (mut size, mut height) = (1_usize, 0);
        let applies_here = |applies| matches!(applies, AppliesTo::SameValue | AppliesTo::Branch);
        let nested = subschemas(schema).into_iter().filter(|part| applies_here(part.applies));
        let referenced = references(schema).filter_map(|reference| self.refs.resolve(reference));
        let same_value: Vec<&Value> = nested.map(|part| part.schema).chain(referenced).collect();
        for inner in same_value {
            let measured = self.measure(inner, depth + 1);
            // Name the cycle by a reference in it: the schema where it was found may have none.
            let (inner_size, inner_height) = measured.map_err(|error| match error {
                SchemaError::CircularRef(name) if name.is_empty() => circular_ref(schema),
                other => other,
            })?;
            size = size.saturating_add(inner_size);
            height = height.max(inner_height + 1);
        }
        if size > MAX_SUBSCHEMAS_PER_VALUE {
            return Err(SchemaError::TooComplex {
                what: "too many subschemas for one value",
                limit: MAX_SUBSCHEMAS_PER_VALUE,
            });
        }
        if height > MAX_NESTED_COMBINATIONS {
            return Err(too_deep());
        }
        self.memo.insert(node_id(schema), Some((size, height)));
        Ok((size, height))
    }
}

fn circular_ref(schema: &Value) -> SchemaError {
    SchemaError::CircularRef(references(schema).next().unwrap_or_default().to_owned())
}

fn too_deep() -> SchemaError {
    SchemaError::TooComplex { what: "too many nested combinations", limit: MAX_NESTED_COMBINATIONS }
}

/// The address of a value, which identifies it while its document is borrowed.
fn node_id(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    #[track_caller]
    fn check(schema: &Value, expected: &str) {
        let result = match check_references(schema, &RefResolver::new(schema)) {
            Ok(()) => "valid".to_owned(),
            Err(error) => format!("{error:?}"),
        };
        assert!(result.contains(expected), "{result} instead of {expected}");
    }

    /// `$defs` in which each definition uses the next one twice.
    fn doubling(levels: usize, wrap: fn(Value) -> Value) -> Value {
        let mut defs = Map::new();
        for level in 0..levels {
            let next = wrap(json!({"$ref": format!("#/$defs/d{}", level + 1)}));
            defs.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        defs.insert(format!("d{levels}"), json!({"type": "string"}));
        json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    #[test]
    fn references_that_double_at_each_step_are_refused_with_or_without_properties_between() {
        check(&doubling(3, |next| next), "valid");
        check(&doubling(12, |next| next), "TooComplex");
        check(&doubling(5, |next| json!({"properties": {"x": next}})), "valid");
        check(&doubling(40, |next| json!({"properties": {"x": next}})), "once each `$ref` is followed");
    }

    #[test]
    fn a_circle_needs_a_property_or_an_item_on_its_way() {
        let tree = json!({"type": "object", "properties": {"children": {"items": {"$ref": "#"}}}});
        check(&tree, "valid");
        check(&json!({"type": "object", "allOf": [{"$ref": "#"}]}), "CircularRef(\"#\")");
        let ring = json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}});
        check(&ring, "CircularRef(\"#/$defs/");
    }

    #[test]
    fn long_chains_and_lost_references_are_refused() {
        let chain = |length: usize| {
            let link =
                |index: usize| json!({"properties": {"x": {"$ref": format!("#/$defs/c{}", (index + 1) % length)}}});
            let defs: Map<_, _> = (0..length).map(|index| (format!("c{index}"), link(index))).collect();
            json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/c0"}}, "$defs": defs})
        };
        check(&chain(200), "valid");
        check(&chain(300), "targets");
        check(&json!({"properties": {"x": {"$ref": "#/$defs/none"}}}), "UnresolvedRef");
    }
}
