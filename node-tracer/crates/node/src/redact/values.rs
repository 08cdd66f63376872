//! Where the value of a secret's name begins and ends.

use std::ops::Range;

use super::{
    forms::{is_likely, is_of_scheme},
    names::{
        Name, is_kind_of_object, is_of_a_name, is_of_sentences, is_part, is_scheme_of_header,
        meaning,
    },
    symbols::{Form, Symbols},
};

/// Names and words are judged by so much of them: names by their ends, words by
/// their beginnings.
const MAX_JUDGED: usize = 256;
/// More is no number of secrets.
const MAX_COUNT: usize = 6;

/// The values of all names that are a secret's.
pub(super) fn of_names(symbols: &Symbols) -> Vec<Range<usize>> {
    let mut values = Values {
        symbols,
        closes: closes(symbols),
        bare: [0..0, 0..0],
        header: 0..0,
        block: 0..0,
        line: 0..0,
    };
    let mut found = Vec::new();
    let mut before = String::new();
    let mut in_structure = false;
    let is_secret_object = has_secret_object(symbols);
    let mut at = 0;
    loop {
        let start = symbols.skip(at, |c| !is_part(c));
        if start >= symbols.len() {
            return found;
        }
        let end = symbols.skip(start, is_part);
        let gap = symbols.text(at..start.min(at + MAX_JUDGED));
        in_structure &= !gap.contains('}');
        if gap.contains('\n') {
            before.clear();
        }
        let name = symbols.text(start.max(end.saturating_sub(MAX_JUDGED))..end);
        let sign = values.sign(end);
        let assigned = sign.as_ref().is_some_and(|sign| sign.char == '=');
        let joined = if gap == " " { before.as_str() } else { "" };
        let mut meaning = meaning(&name, joined, assigned);
        let is_value = in_structure && name.eq_ignore_ascii_case("value");
        if is_value || is_secret_object && name == "data" {
            meaning = Name::Secret;
        }
        let named = Named {
            meaning,
            end,
            is_flag: name.starts_with('-'),
            is_in_path: symbols.before(start) == Some('/'),
            is_user: symbols.ends_with(start, "//"),
            is_object: symbols.before(start).is_some_and(is_quote)
                && is_quote(symbols.char(end))
                && !gap.contains(',')
                && is_kind_of_object(&before),
        };
        found.extend(match sign {
            _ if meaning == Name::Other => None,
            Some(sign) => values.signed(&named, &sign),
            None => values.unsigned(&named),
        });
        let opens = symbols.skip(end, |c| c == ' ');
        let is_named = is_of_a_name(&before) && gap.contains([':', '=']);
        in_structure |= meaning == Name::Secret && (symbols.char(opens) == '{' || is_named);
        before = name;
        at = end;
    }
}

/// Whether a Secret of Kubernetes is printed, whose data may stand before its
/// kind.
fn has_secret_object(symbols: &Symbols) -> bool {
    let mut at = 0;
    while at < symbols.len() {
        let start = symbols.skip(at, |c| !is_part(c));
        at = symbols.skip(start, is_part);
        if at - start == 4 && symbols.ends_with(at, "kind") {
            let value = symbols.skip(at, |c| is_quote(c) || c == ':' || c == ' ');
            let end = symbols.skip(value, is_part);
            if value > at && end - value == 6 && symbols.ends_with(end, "Secret") {
                return true;
            }
        }
    }
    false
}

struct Named {
    meaning: Name,
    end: usize,
    is_flag: bool,
    is_in_path: bool,
    /// Of a URL.
    is_user: bool,
    /// The name of an object that is called like a secret: `volume "api-token"`.
    is_object: bool,
}

/// What stands between a name and its value.
struct Sign {
    char: char,
    /// Right behind it.
    end: usize,
    is_percent: bool,
}

/// With it, the last extents: what begins within one ends where it does, so that
/// names that follow on another are not read to the end each.
struct Values<'a> {
    symbols: &'a Symbols,
    closes: Vec<Option<usize>>,
    bare: [Range<usize>; 2],
    header: Range<usize>,
    block: Range<usize>,
    line: Range<usize>,
}

impl Values<'_> {
    /// `:`, `=`, `==`, `:=` or `=>`, behind quotes that end.
    fn sign(&self, end: usize) -> Option<Sign> {
        let symbols = self.symbols;
        let quotes = symbols.skip(end, |c| is_quote(c) || c == ']');
        let quotes = if quotes - end > 3 { end } else { quotes };
        let at = symbols.skip(quotes, is_space);
        let char = symbols.char(at);
        let mut signs = at;
        while ":=".contains(symbols.char(signs)) && symbols.form(signs) == symbols.form(at) {
            signs += 1;
        }
        let is_url = signs == at + 1
            && char == ':'
            && symbols.char(signs) == '/'
            && symbols.char(signs + 1) == '/';
        if signs == at || is_url {
            return None;
        }
        let arrow = symbols.char(signs - 1) == '=' && symbols.char(signs) == '>';
        Some(Sign {
            char,
            end: signs + usize::from(arrow),
            is_percent: symbols.form(at) == Form::Percent,
        })
    }

    fn signed(&mut self, named: &Named, sign: &Sign) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let begin = symbols.skip(sign.end, is_space);
        let is_spaced = begin > sign.end || symbols.char(begin) == '\n';
        let is_colon = sign.char == ':';
        // `.../token: no such file`
        if named.is_in_path && is_colon && (is_spaced || named.is_user) {
            return None;
        }
        let is_bare = !is_quote(symbols.char(begin));
        // What an error says of it.
        let is_said = is_colon && is_spaced && is_bare && is_of_sentences(&self.word(begin));
        let is_objects = named.is_object && is_bare;
        if is_said || is_objects {
            return None;
        }
        let first = symbols.skip(begin, |c| is_quote(c) || "[({$ ".contains(c));
        let first = self.word(first);
        let is_sure = match named.meaning {
            Name::Secret => !is_path(&first),
            Name::Secrets => first.len() > MAX_COUNT || !first.bytes().all(|c| c.is_ascii_digit()),
            Name::Parameter => !is_colon,
            Name::Header => true,
            Name::Cookies => is_colon && self.is_cookie(begin),
            Name::Scheme => is_of_scheme(&first),
            Name::Doubtful | Name::User | Name::Other => false,
        };
        match named.meaning {
            Name::User if named.is_flag => self.password(begin),
            _ if !is_sure && !is_likely(&first) => None,
            Name::Header => self.header(begin, sign, false),
            Name::Cookies => self.header(begin, sign, true),
            _ => self.value(begin, sign),
        }
    }

    /// Without a sign, a value must look like one, or follow a flag.
    fn unsigned(&mut self, named: &Named) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let mut begin = symbols.skip(named.end, |c| !is_part(c) && c != '\n');
        let gap = symbols.text(named.end..begin.min(named.end + MAX_JUDGED));
        let mut word = self.word(begin);
        let is_next =
            !gap.is_empty() && gap.chars().all(|c| is_space(c) || is_quote(c) || c == ',');
        match named.meaning {
            Name::User if is_next => return self.password(begin),
            Name::Scheme if is_next => {
                return is_of_scheme(&self.with_signs(begin)).then(|| self.bare(begin, false))?;
            }
            Name::Secret | Name::Secrets | Name::Header if !named.is_in_path => {}
            _ => return None,
        }
        if named.is_flag && is_next && !word.starts_with('-') && !word.is_empty() {
            if let Some(quote) = begin
                .checked_sub(1)
                .filter(|at| is_quote(symbols.char(*at)))
            {
                return Some(begin..self.quote_end(quote));
            }
            // A password begins with any sign.
            let from = symbols.skip(named.end, |c| is_space(c) || c == ',');
            if !is_of_sentences(&word) && symbols.char(from) != '-' {
                return self.bare(from, false);
            }
        }
        if ["is", "was"].contains(&word.as_str()) {
            begin = symbols.skip(begin + word.len(), |c| !is_part(c) && c != '\n');
            word = self.word(begin);
        }
        is_likely(&word).then(|| self.bare(begin, false))?
    }

    /// What is judged of the word that begins here.
    fn word(&self, at: usize) -> String {
        let symbols = self.symbols;
        let is_of_word = |at: &usize| {
            let c = symbols.char(*at);
            c.is_ascii_alphanumeric() || "._-+/~".contains(c)
        };
        let word = (at..at + MAX_JUDGED).take_while(is_of_word);
        word.map(|at| symbols.char(at)).collect()
    }

    /// With the `=` that base64 ends with.
    fn with_signs(&self, at: usize) -> String {
        let mut word = self.word(at);
        if self.symbols.char(at + word.len()) == '=' {
            word.push('=');
        }
        word
    }

    fn value(&mut self, begin: usize, sign: &Sign) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let c = symbols.char(begin);
        if is_quote(c) {
            return self.quoted(begin, sign.end);
        }
        let is_block = "|>".contains(c)
            && symbols.char(symbols.skip(begin + 1, |c| "+-".contains(c) || is_space(c))) == '\n';
        if c == '\n' || is_block {
            return self.block(begin);
        }
        if "([{".contains(c) {
            let end = self.bracket_end(begin);
            let more = self.bare(end, sign.is_percent).map_or(end, |more| more.end);
            return Some(begin..more);
        }
        self.bare(begin, sign.is_percent)
    }

    fn quoted(&self, begin: usize, sign_end: usize) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let is_same = |at: usize| {
            symbols.char(at) == symbols.char(begin) && symbols.form(at) == symbols.form(begin)
        };
        let next = symbols.char(begin + 1);
        if is_same(begin + 1) {
            // An empty one, or quotes in quotes.
            let is_in_both = symbols.char(begin + 2).is_ascii_alphanumeric();
            return is_in_both.then(|| begin + 2..self.quote_end(begin + 1));
        }
        // Quotes that end right behind the sign: `"no token:" next=...`
        let is_end = begin == sign_end && (next.is_whitespace() || ",;)]}".contains(next));
        (!is_end).then(|| begin + 1..self.quote_end(begin))
    }

    /// Where quotes end: at such, or at those that these stand in, or where the line does.
    fn quote_end(&self, quote: usize) -> usize {
        let symbols = self.symbols;
        let (char, form) = (symbols.char(quote), symbols.form(quote));
        let mut rest = quote + 1..symbols.len();
        let ends = |at: &usize| {
            let is_quote = symbols.char(*at) == char && symbols.form(*at) <= form;
            is_quote || self.is_lines_end(*at)
        };
        rest.find(ends).unwrap_or(symbols.len())
    }

    fn is_lines_end(&self, at: usize) -> bool {
        self.symbols.char(at) == '\n' && self.symbols.form(at) == Form::Escaped(0)
    }

    fn line_end(&mut self, at: usize) -> usize {
        if !self.line.contains(&at) {
            let mut rest = at..self.symbols.len();
            let end = rest.find(|at| self.is_lines_end(*at));
            self.line = at..end.unwrap_or(self.symbols.len());
        }
        self.line.end
    }

    /// Behind the bracket that closes, or where the line ends.
    fn bracket_end(&mut self, open: usize) -> usize {
        let close = self.closes.get(open).copied().flatten();
        close.map_or_else(|| self.line_end(open), |close| close + 1)
    }

    /// A word, which ends in a list, a URL or a structure where its part does.
    fn bare(&mut self, begin: usize, is_percent: bool) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let last = &mut self.bare[usize::from(is_percent)];
        if !last.contains(&begin) {
            let mut depth = 0_usize;
            let mut at = begin;
            while at < symbols.len() {
                let c = symbols.char(at);
                if symbols.form(at) == Form::Percent && !is_percent {
                    at += 1;
                    continue;
                }
                let is_within = at > begin
                    && symbols.char(at + 1).is_ascii_alphanumeric()
                    && symbols.char(at - 1).is_ascii_alphanumeric();
                match c {
                    '(' | '[' | '{' | '<' => depth += 1,
                    ')' | ']' | '}' | '>' if depth == 0 => break,
                    ')' | ']' | '}' | '>' => depth -= 1,
                    ',' | ';' | '&' => break,
                    _ if c.is_whitespace() || (is_quote(c) && !is_within) => break,
                    _ => {}
                }
                at += 1;
            }
            *last = begin..at;
        }
        let mut end = last.end;
        while end > begin && symbols.char(end - 1) == ':' {
            end -= 1;
        }
        (end > begin).then_some(begin..end)
    }

    /// Lines of YAML that stand further in.
    fn block(&mut self, begin: usize) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let is_indented = |at: usize| is_space(symbols.char(at)) || symbols.ends_with(at + 2, "- ");
        let first = symbols.skip(begin, |c| c != '\n') + 1;
        if !is_indented(first) {
            let word = self.word(first);
            return is_likely(&word).then(|| self.bare(first, false))?;
        }
        let start = symbols.skip(first, is_space);
        if !self.block.contains(&first) {
            let mut at = first;
            while at < symbols.len() && is_indented(at) {
                at = symbols.skip(at, |c| c != '\n') + 1;
            }
            self.block = first..at;
        }
        let end = (self.block.end - 1).min(symbols.len());
        (end > start).then_some(start..end)
    }

    fn header(&mut self, begin: usize, sign: &Sign, is_list: bool) -> Option<Range<usize>> {
        let symbols = self.symbols;
        if is_quote(symbols.char(begin)) || "[({".contains(symbols.char(begin)) {
            return self.value(begin, sign);
        }
        // What the scheme is, is no secret.
        let scheme = self.word(begin);
        let behind = symbols.skip(begin + scheme.len(), |c| {
            is_space(c) || c == ':' || c == '='
        });
        let is_scheme = is_scheme_of_header(&scheme) && behind > begin + scheme.len();
        let start = if is_scheme { behind } else { begin };
        if !self.header.contains(&start) {
            self.header = start..self.header_end(start, is_list);
        }
        let mut end = self.header.end;
        while end > start && is_space(symbols.char(end - 1)) {
            end -= 1;
        }
        (end > start).then_some(start..end)
    }

    /// The line's end, or that of the quotes or brackets that the header stands in.
    fn header_end(&self, begin: usize, is_list: bool) -> usize {
        let symbols = self.symbols;
        let mut at = begin;
        let mut depth = 0_usize;
        while at < symbols.len() {
            let c = symbols.char(at);
            let is_within =
                symbols.form(at) == Form::Percent && symbols.form(begin) != Form::Percent;
            match c {
                _ if is_within => {}
                '\n' => break,
                ',' if is_list => break,
                '(' | '[' | '{' => depth += 1,
                ')' | ']' | '}' if depth == 0 => break,
                ')' | ']' | '}' => depth -= 1,
                _ if is_quote(c) => {
                    let opens = symbols.before(at).is_some_and(|c| "=:, ([{".contains(c));
                    if !opens {
                        break;
                    }
                    at = self.quote_end(at);
                }
                _ => {}
            }
            at += 1;
        }
        at.min(symbols.len())
    }

    /// `name=value`
    fn is_cookie(&self, begin: usize) -> bool {
        let begin = self.symbols.skip(begin, |c| is_quote(c) || c == '[');
        let sign = begin + self.word(begin).len();
        let value = self.symbols.char(sign + 1);
        sign > begin && self.symbols.char(sign) == '=' && !value.is_whitespace()
    }

    /// `user:`**`password`**, but not the number of a user and of a group.
    fn password(&mut self, begin: usize) -> Option<Range<usize>> {
        let symbols = self.symbols;
        let begin = symbols.skip(begin, is_quote);
        let user = self.word(begin);
        let colon = begin + user.len();
        let password = self.word(colon + 1);
        let are_numbers = [&user, &password]
            .iter()
            .all(|it| it.bytes().all(|c| c.is_ascii_digit()));
        if symbols.char(colon) != ':' || are_numbers {
            return None;
        }
        self.bare(colon + 1, false)
    }
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

fn is_space(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// A file, which may have a secret in it.
fn is_path(word: &str) -> bool {
    let rest = word.strip_prefix('/');
    rest.is_some_and(|rest| rest.contains(['/', '.']))
}

/// Which bracket closes each.
fn closes(symbols: &Symbols) -> Vec<Option<usize>> {
    let mut closes = vec![None; symbols.len()];
    let mut open: Vec<(usize, char)> = Vec::new();
    for at in 0..symbols.len() {
        let close = match symbols.char(at) {
            '(' => ')',
            '[' => ']',
            '{' => '}',
            c => {
                if let Some((begin, _)) = open.pop_if(|(_, close)| *close == c)
                    && let Some(own) = closes.get_mut(begin)
                {
                    *own = Some(at);
                }
                continue;
            }
        };
        open.push((at, close));
    }
    closes
}
