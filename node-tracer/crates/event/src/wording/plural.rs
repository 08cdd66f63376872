//! Words that follow a number.

/// A number with its noun: `1 sandbox`, `2 sandboxes`.
pub fn counted(number: usize, noun: &str) -> String {
    format!("{number} {}", after(number as u64, noun))
}

/// A noun as it stands after a number: `sandbox` after 1, else `sandboxes`.
pub fn after(number: u64, noun: &str) -> String {
    let ending = match noun {
        _ if number == 1 => "",
        _ if noun.ends_with(['s', 'x']) => "es",
        _ => "s",
    };
    format!("{noun}{ending}")
}

/// A sum of counts that others have named: at most what there is room for.
pub fn total<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts
        .into_iter()
        .fold(0, |sum, count| sum.saturating_add(*count))
}

/// From here on a number has two digits that count.
const EXACT: u64 = 100;
/// Before a number that was rounded down.
pub const AT_LEAST: &str = "at least ";

/// A number that does not change with each thing: a large one has two digits.
pub fn round(count: u64) -> String {
    if count < EXACT {
        return count.to_string();
    }
    let mut step = 1;
    while count / step >= EXACT {
        step *= 10;
    }
    format!("{AT_LEAST}{}", count / step * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_noun_has_the_plural_that_it_needs() {
        assert_eq!(counted(1, "sandbox"), "1 sandbox");
        assert_eq!(counted(0, "sandbox"), "0 sandboxes");
        assert_eq!(counted(2, "address"), "2 addresses");
        assert_eq!(counted(2, "network namespace"), "2 network namespaces");
        assert_eq!(counted(3, "veth"), "3 veths");
    }
}
