//! How things are named and spelt wherever people read them.

pub mod advice;
pub mod duration;
pub mod escape;
pub mod plural;
pub mod signal;
pub mod stack;
pub mod subjects;

/// The beginning of a text, of at most so many bytes: what bounds memory counts
/// these, and a character can have four.
pub fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}
