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
