//! An engine to tell stories to.

use std::time::Duration;

use crate::{Engine, Settings};
use event::{
    Event, What,
    finding::{Finding, Rule, State},
    testing::at,
};

/// An engine to tell a story to.
#[derive(Debug)]
pub struct Node(pub Engine);

impl Default for Node {
    fn default() -> Self {
        Self::with_threshold(Duration::from_secs(5))
    }
}

impl Node {
    pub fn with_threshold(stall_threshold: Duration) -> Self {
        Self(Engine::of_trace(Settings {
            boot_id: String::from("boot"),
            node: String::from("node-1"),
            node_is_named: true,
            stall_threshold,
            surveyed: false,
        }))
    }

    /// One that is told of looks, as a scan is: all namespaces were to be
    /// visited.
    pub fn of_looks(events: &[Event]) -> Self {
        let settings = Settings {
            surveyed: true,
            ..Self::default().0.settings().clone()
        };
        let mut node = Self(Engine::new(settings));
        node.tell_all(events);
        node
    }

    pub fn of(events: &[Event]) -> Self {
        let mut node = Self::default();
        node.tell_all(events);
        node
    }

    pub fn tell(&mut self, event: Event) {
        assert_eq!(self.0.apply(&event), [], "only ticks are answered");
    }

    pub fn tell_all(&mut self, events: &[Event]) {
        for event in events {
            self.tell(event.clone());
        }
    }

    pub fn tick(&mut self, seconds: i64) -> Vec<(Finding, State)> {
        self.0.apply(&at(seconds, What::Tick))
    }

    /// What one rule says at a tick.
    pub fn of_rule(&mut self, seconds: i64, rule: Rule) -> Vec<(Finding, State)> {
        let mut told = self.tick(seconds);
        told.retain(|(finding, _)| finding.rule == rule);
        told
    }

    /// The one thing that one rule says at a tick.
    pub fn only(&mut self, seconds: i64, rule: Rule, state: State) -> (Finding, State) {
        let told = self.of_rule(seconds, rule);
        let [one] = told.as_slice() else {
            panic!("not one finding: {told:#?}")
        };
        assert_eq!(one.1, state, "{:#?}", one.0);
        one.clone()
    }
}
