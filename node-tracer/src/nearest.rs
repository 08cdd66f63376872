//! What was meant by a word that is none.

/// As near as a typo is: clap's own measure, so that a command's name and a rule's
/// are guessed alike.
const NEAR: f64 = 0.7;

/// The nearest of some words, if one is near; else the first that the word begins.
pub(crate) fn of<'a>(typed: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_lowercase().replace(['_', ' '], "-");
    let words: Vec<&str> = words.collect();
    let begun = words
        .iter()
        .find(|word| typed.len() > 2 && word.starts_with(&typed));
    begun.copied().or_else(|| {
        let near = words
            .into_iter()
            .map(|word| (strsim::jaro(&typed, word), word));
        let near = near.filter(|(near, _)| *near > NEAR);
        near.max_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, word)| word)
    })
}

/// The guess as a question.
pub(crate) fn said(word: Option<&str>) -> String {
    word.map_or(String::new(), |word| format!("; did you mean {word}?"))
}
