//! One file for each kernel topic; the names are those of the tracer's
//! events and of the tests.

mod address;
mod budget;
mod cni;
mod netns;
mod notifier;
mod oom;
mod pipe;
mod task;
mod walk;
