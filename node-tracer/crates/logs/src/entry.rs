//! One message of a log, whatever form the log has.

use std::borrow::Cow;

use event::clock::Timestamp;

pub use diagnosis::gate::Level;

/// One message, whole: folded lines are joined, envelopes (the journal's, a
/// container log's) taken off.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry<'a> {
    /// When it was written; `None` if neither it nor its surroundings say (the
    /// output of kubectl, a line that somebody has copied).
    pub time: Option<Timestamp>,
    /// The host, by the envelope.
    pub host: Option<&'a str>,
    /// Who wrote it, by the envelope: `kubelet`, `containerd`, `dockerd`,
    /// `crio`, `kernel`, ...; the journal's identifier, or its unit without
    /// `.service`.
    pub ident: Option<&'a str>,
    /// Its process, by the envelope or by the message's own header.
    pub pid: Option<u32>,
    /// How bad its writer found it.
    pub level: Option<Level>,
    /// The same in the writer's own words. Who passes a message on (journald,
    /// syslog) calls most of them information.
    pub own_level: Option<Level>,
    /// The innermost message, unquoted: klog's text, logrus's `msg`, JSON's
    /// `msg` or `MESSAGE`.
    pub message: Cow<'a, str>,
    /// What stood beside it as `key=value` or as JSON members, unquoted, in
    /// order: `err`, `pod`, `podUID`, `error`, `ContainerID`, `Workload`, ...
    pub fields: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The number of its first line, from 1.
    pub line: u64,
}

impl Entry<'_> {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let field = fields.find(|(key, _)| key == name);
        field.map(|(_, value)| value.as_ref())
    }
}
