//! Numbers of one kind, and what is said of them.

use std::fmt;

/// At least one number, each a measurement of the same thing.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    /// Takes them in any order.
    pub(crate) fn of(mut numbers: Vec<f64>) -> anyhow::Result<Self> {
        anyhow::ensure!(!numbers.is_empty(), "nothing was measured");
        anyhow::ensure!(
            numbers.iter().all(|number| number.is_finite()),
            "what was measured is no number"
        );
        numbers.sort_by(f64::total_cmp);
        Ok(Self(numbers))
    }

    /// The value below which such a part of them is; between two numbers, the
    /// line between them.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let at = part * (self.0.len() - 1) as f64;
        let (below, above) = (self.0[at.floor() as usize], self.0[at.ceil() as usize]);
        below + (above - below) * at.fract()
    }

    /// The middle one, of an even number the mean of both.
    pub(crate) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(crate) fn max(&self) -> f64 {
        self.quantile(1.0)
    }

    /// Standard error of the median, by what is between the quartiles (as of a
    /// normal distribution: 1.349 standard deviations are between them, and the
    /// median's error is 1.2533 times the mean's).
    pub(crate) fn error(&self) -> f64 {
        let between = self.quantile(0.75) - self.quantile(0.25);
        1.2533 * between / 1.349 / (self.0.len() as f64).sqrt()
    }

    /// Whether it is above another by more than both medians' errors allow: of
    /// two that are the same, one is always above.
    pub(crate) fn is_above(&self, other: &Self) -> bool {
        self.median() - other.median() > self.error().hypot(other.error()) * 2.0
    }
}

impl fmt::Display for Sample {
    /// The median, and between what the middle half is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        let [q1, q3] = [0.25, 0.75].map(|part| self.quantile(part));
        write!(
            f,
            "{:.digits$} ({q1:.digits$}–{q3:.digits$})",
            self.median()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_numbers_in_order() {
        let sample = Sample::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(
            (sample.median(), sample.quantile(0.0), sample.max()),
            (2.5, 1.0, 4.0)
        );
        assert_eq!(format!("{sample:.1}"), "2.5 (1.8–3.2)");
        let one = Sample::of(vec![7.0]).unwrap();
        assert_eq!((one.median(), one.quantile(0.99)), (7.0, 7.0));
        assert!(Sample::of(Vec::new()).is_err());
        assert!(Sample::of(vec![1.0, f64::NAN]).is_err());
    }
    #[test]
    fn two_samples_of_the_same_are_not_above_each_other() {
        let sample = |shift: f64| {
            let numbers = (0..15_u32).map(|n| f64::from(n * 7 % 15) + shift);
            Sample::of(numbers.collect()).unwrap()
        };
        assert!(!sample(0.5).is_above(&sample(0.0)) && !sample(0.0).is_above(&sample(0.5)));
        assert!(sample(9.0).is_above(&sample(0.0)) && !sample(0.0).is_above(&sample(9.0)));
    }
}
