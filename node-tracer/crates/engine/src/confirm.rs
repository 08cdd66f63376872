//! What looks show, and what of it counts.
//!
//! A look reads the node piece by piece: namespaces one after the other, files
//! and runtimes after them. Findings that compare such pieces count only if a
//! second look shows them, too. This is pure: `scan` feeds it
//! while it looks, `replay` from what was recorded of it.

use std::collections::BTreeSet;

use crate::{Engine, Settings};
use event::{Event, finding::Finding};

/// An engine that is given looks.
#[derive(Debug)]
pub struct Confirmation {
    engine: Engine,
    /// What was found by the last look.
    open: BTreeSet<String>,
    /// And by the one before it, too.
    confirmed: BTreeSet<String>,
}

impl Confirmation {
    pub fn new(settings: Settings) -> Self {
        Self {
            engine: Engine::new(settings),
            open: BTreeSet::new(),
            confirmed: BTreeSet::new(),
        }
    }

    /// What they make together.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Takes in a part of a look.
    pub fn apply(&mut self, event: &Event) {
        // What is open is asked for at the end.
        self.engine.apply(event);
    }

    /// A look is taken in as a whole.
    pub fn looked(&mut self) {
        let open = self.engine.open().into_iter();
        let open: BTreeSet<String> = open.map(|finding| finding.id.clone()).collect();
        let before = std::mem::replace(&mut self.open, open);
        self.confirmed = before.intersection(&self.open).cloned().collect();
    }

    /// Whether there is anything that has been seen only once and may be of a
    /// moment.
    pub fn is_doubtful(&self) -> bool {
        let mut open = self.engine.open().into_iter();
        open.any(|finding| self.doubts(finding))
    }

    /// There is no other look to confirm it: what is doubtful does not count.
    pub fn judged(&mut self) {
        let open = self.engine.open().into_iter();
        let doubtful = open.filter(|finding| self.doubts(finding));
        let doubtful: BTreeSet<String> = doubtful.map(|finding| finding.id.clone()).collect();
        self.engine
            .retain(|finding| !doubtful.contains(&finding.id));
    }

    fn doubts(&self, finding: &Finding) -> bool {
        finding.rule.spec().needs_confirmation && !self.confirmed.contains(&finding.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;
    use event::rule::Rule;
    use event::{What, testing::*};

    fn looks() -> Confirmation {
        Confirmation::new(Node::default().0.settings().clone())
    }

    fn rules(looks: &Confirmation) -> Vec<Rule> {
        let open = looks.engine().open().into_iter();
        open.map(|finding| finding.rule).collect()
    }

    #[test]
    fn what_is_compared_counts_from_the_second_look_on() {
        let mut looks = looks();
        for event in ghost_story() {
            looks.apply(&event);
        }
        looks.apply(&at(70, What::Tick));
        looks.looked();
        assert!(looks.is_doubtful());
        let mut once = rules(&looks);
        looks.judged();
        assert!(once.contains(&Rule::GhostSandbox));
        once.retain(|rule| *rule != Rule::GhostSandbox);
        assert_eq!(rules(&looks), once, "one source alone says the others");

        looks.apply(&reserved(71, None));
        looks.apply(&at(71, What::Tick));
        looks.looked();
        assert!(!looks.is_doubtful());
        looks.judged();
        assert!(rules(&looks).contains(&Rule::GhostSandbox));
    }
}
