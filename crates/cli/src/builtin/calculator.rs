//! Evaluates an arithmetic expression: `+ - * /`, parentheses, decimal numbers.
//!
//! In: text. Out: a number, or where parsing failed.

/// Evaluates an expression.
///
/// # Errors
/// When it is too long, cannot be parsed, is nested too deeply, or has no finite value.
pub(crate) fn evaluate(text: &str) -> Result<f64, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("it is longer than {MAX_LENGTH} bytes"));
    }
    let mut parser = Parser { rest: text.trim_start(), depth: 0 };
    let value = parser.sum()?;
    if !parser.rest.is_empty() {
        return Err(format!("cannot go on at {}", parser.position()));
    }
    if value.is_finite() { Ok(value) } else { Err("it has no finite value".into()) }
}

/// Maximum length in bytes, so that no expression takes long.
const MAX_LENGTH: usize = 10_000;
/// How many characters of the rest an error shows.
const MAX_SHOWN: usize = 40;
/// Maximum nesting depth, because the parser is recursive.
const MAX_DEPTH: usize = 50;

struct Parser<'a> {
    rest: &'a str,
    depth: usize,
}

impl Parser<'_> {
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.eat('+') {
                value += self.product()?;
            } else if self.eat('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.factor()?;
        loop {
            if self.eat('*') {
                value *= self.factor()?;
            } else if self.eat('/') {
                value /= self.factor()?;
            } else {
                return Ok(value);
            }
        }
    }

    fn factor(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH}"));
        }
        let value = if self.eat('-') {
            -self.factor()?
        } else if self.eat('(') {
            let value = self.sum()?;
            if !self.eat(')') {
                return Err("a bracket is not closed".into());
            }
            value
        } else {
            self.number()?
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64, String> {
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let value = digits.parse().map_err(|_| format!("a number is missing before {}", self.position()))?;
        self.rest = rest.trim_start();
        Ok(value)
    }

    /// Where the parser is, for an error.
    fn position(&self) -> String {
        match self.rest.char_indices().nth(MAX_SHOWN) {
            None if self.rest.is_empty() => "the end".into(),
            None => format!("`{}`", self.rest),
            Some((end, _)) => format!("`{}…`", &self.rest[..end]),
        }
    }

    fn eat(&mut self, sign: char) -> bool {
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.map_or(self.rest, str::trim_start);
        rest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<f64, &str>) {
        assert_eq!(evaluate(text), expected.map_err(String::from), "{text}");
    }

    #[test]
    fn expressions_have_the_value_taught_at_school() {
        check("1 + 2 * 3", Ok(7.0));
        check("(1 + 2) * -3 / 2", Ok(-4.5));
        check(" 10-4-3 ", Ok(3.0));
        check("-(2.5)", Ok(-2.5));
    }

    #[test]
    fn nonsense_says_where_it_stops_making_sense() {
        check("2 +", Err("a number is missing before the end"));
        check("2 x 3", Err("cannot go on at `x 3`"));
        check("(1", Err("a bracket is not closed"));
        check("1 / 0", Err("it has no finite value"));
        check(&"(".repeat(10_000), Err("it is nested deeper than 50"));
        check(&"(".repeat(10_001), Err("it is longer than 10000 bytes"));
        check(&format!("1 {}", "ä".repeat(99)), Err(&format!("cannot go on at `{}…`", "ä".repeat(40))));
        check(&vec!["1"; 5_000].join("+"), Ok(5_000.0));
    }
}
