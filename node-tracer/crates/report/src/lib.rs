//! The page of an incident, to be handed to those who were not there.
//!
//! It is made of the findings that an engine tells, and of the events
//! themselves. Nothing is kept that the
//! page cannot show: [`lanes`] and [`history`] bound themselves and count what
//! they leave out, and the page says so.
//!
//! | module | what |
//! |---|---|
//! | [`sheet`] | takes the run in: a sink |
//! | [`lanes`], [`history`] | sandboxes and findings over time |
//! | [`incident`] | which of them belong together |
//! | [`shared`], [`clocks`] | addresses that sandboxes of several nodes have, and how far the nodes' clocks are apart |
//! | [`narrative`], [`prose`] | the incident in words |
//! | [`timeline`], [`axis`] | the incident as a drawing |
//! | [`page`], [`shown`] | what the template is given |
//!
//! The page loads nothing and runs nothing: there is no script, and a content
//! security policy forbids any. All text that is not the template's own gets
//! there as [`Shown`](shown::Shown) and is escaped by the template engine.

#![forbid(unsafe_code)]

pub mod axis;
pub mod clocks;
pub mod history;
pub mod incident;
pub mod lanes;
pub mod narrative;
#[cfg(any(test, feature = "testing"))]
pub mod outline;
pub mod page;
pub mod prose;
pub mod shared;
pub mod sheet;
pub mod shown;
pub mod timeline;
