//! A terminal's text as a picture (SVG) that a browser shows in the reader's
//! own colours, light or dark.

use std::fmt::Write as _;

/// A character of a fixed-width font of 14 pixels, and a line of it.
const WIDTH: f64 = 8.43;
const HEIGHT: usize = 19;
const MARGIN: usize = 16;

/// Colours of the text, by the parameters of its SGR sequence (ECMA-48): the
/// class, on a light ground, on a dark one, and what else is so.
const STYLES: [(&str, &str, &str, &str, &str); 6] = [
    ("1;31", "critical", "#b3141d", "#ff7b80", "font-weight:bold"),
    ("1;35", "warning", "#8a5a00", "#f2c14e", "font-weight:bold"),
    ("36", "info", "#0b6e7f", "#5fd0e0", ""),
    ("32", "good", "#1f7a34", "#6fd08c", ""),
    ("1", "title", "#1d2430", "#f0f3f6", "font-weight:bold"),
    ("2", "quiet", "#5f6a78", "#9aa5b1", ""),
];

/// The picture of what a program wrote to a terminal of so many columns.
pub fn svg(written: &str, columns: usize, title: &str) -> String {
    let lines: Vec<&str> = written.lines().collect();
    let width = (columns as f64 * WIDTH).ceil() as usize + 2 * MARGIN;
    let height = lines.len() * HEIGHT + 2 * MARGIN;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{0}\">\n<title>{0}</title>\n<style>\n\
         rect{{fill:#fff;stroke:#d0d7de}}\n\
         text{{font:14px ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;fill:#1d2430;\
         white-space:pre}}\n",
        escaped(title),
    );
    for (_, class, light, _, more) in STYLES {
        let _ = writeln!(text, ".{class}{{fill:{light};{more}}}");
    }
    text += "@media(prefers-color-scheme:dark){\nrect{fill:#0d1117;stroke:#30363d}\ntext{fill:#d6dde4}\n";
    for (_, class, _, dark, _) in STYLES {
        let _ = writeln!(text, ".{class}{{fill:{dark}}}");
    }
    text += "}\n</style>\n";
    let _ = writeln!(
        text,
        "<rect x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"6\"/>",
        width - 1,
        height - 1
    );
    for (row, line) in lines.iter().enumerate() {
        let base = MARGIN + row * HEIGHT + 14;
        let mut column = 0;
        for (style, piece) in pieces(line) {
            let length = piece.chars().count();
            let class = STYLES.iter().find(|(sgr, ..)| *sgr == style);
            let class = class.map(|(_, class, ..)| format!(" class=\"{class}\""));
            if !piece.trim().is_empty() {
                let _ = writeln!(
                    text,
                    "<text x=\"{:.1}\" y=\"{base}\"{} textLength=\"{:.1}\" xml:space=\"preserve\">{}</text>",
                    MARGIN as f64 + column as f64 * WIDTH,
                    class.unwrap_or_default(),
                    length as f64 * WIDTH,
                    escaped(piece),
                );
            }
            column += length;
        }
    }
    text + "</svg>\n"
}

/// A line in pieces of one style each; other sequences than SGR are not written
/// to what is no terminal.
fn pieces(line: &str) -> Vec<(&str, &str)> {
    let mut style = "";
    let mut pieces = Vec::new();
    for part in line.split("\x1b[") {
        let text = match pieces.is_empty() {
            true => part,
            false => {
                let (sgr, text) = part.split_once('m').unwrap_or(("", part));
                style = if sgr == "0" { "" } else { sgr };
                text
            }
        };
        pieces.push((style, text));
    }
    pieces
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_coloured_has_its_class_and_its_column() {
        let picture = svg("ab \x1b[1;31mx < y\x1b[0m z", 20, "a & b");
        assert!(
            picture.contains("class=\"critical\" textLength=\"42.1\""),
            "{picture}"
        );
        assert!(picture.contains(">x &lt; y</text>"), "{picture}");
        assert!(picture.contains(&format!("x=\"{:.1}\" y=\"30\" class", 16.0 + 3.0 * WIDTH)));
        assert!(picture.contains("<title>a &amp; b</title>"));
        assert!(!picture.contains('\x1b'));
    }
}
