//! Calls that are over and done with, forgotten: a node makes and takes back
//! sandboxes for months.

use std::time::Duration;

use super::{AttachmentCalls, Calls, Key, of_container, pod_key};
use event::clock::Timestamp;

/// How long after its last call an attachment that was taken back is kept at
/// least: what may still come of a DEL has come by then.
pub(in crate::model) const KEPT: Duration = Duration::from_secs(600);
/// Between two looks for what is past.
const PAUSE: Duration = Duration::from_secs(60);

impl Calls {
    /// Whether it is time to look for what is past, once a minute. A clock that
    /// was set back makes it so, too.
    pub(in crate::model) fn is_past_due(&self, now: Timestamp) -> bool {
        let early = |at: Timestamp| at <= now && now.since(at) < PAUSE;
        !self.looked.is_some_and(early)
    }

    /// Forgets attachments that were taken back in good order
    /// [some time ago](KEPT), unless somebody still knows of their container or
    /// a sandbox of the same pod name that was there then may live.
    pub(in crate::model) fn forget_past(
        &mut self,
        now: Timestamp,
        is_known: impl Fn(&AttachmentCalls) -> bool,
    ) {
        self.looked = Some(now);
        let Self {
            attachments, pods, ..
        } = self;
        // One that is there is counted once, whenever it is called for again.
        pods.forget_past(now, |id| {
            let mut all = of_container(attachments, id);
            all.any(|attachment| attachment.deleted().is_none())
        });
        let aged = self.by_age.iter();
        let aged = aged.take_while(|(last, _)| now.since(*last) > KEPT);
        let told = self.pods.in_findings(now);
        let past = aged
            .filter_map(|(_, key)| Some((key, self.attachments.get(key)?)))
            .filter(|(_, attachment)| attachment.is_past() && !is_known(attachment))
            .filter(|(_, attachment)| !told.contains(attachment.container_id.as_str()));
        // Its DELs, should any more come, are compared with the ADDs of others.
        let free = past.filter(|(_, attachment)| {
            let mut others = self.others(attachment);
            !others.any(|other| other.first <= attachment.last && other.may_live())
        });
        let free: Vec<Key> = free.map(|(key, _)| key.clone()).collect();
        for key in free {
            self.remove(&key);
        }
    }

    /// Attachments of other sandboxes whose pod has the same name.
    fn others<'a>(&'a self, of: &'a AttachmentCalls) -> impl Iterator<Item = &'a AttachmentCalls> {
        let name = of.pod.as_ref().and_then(pod_key);
        let keys = name.and_then(|name| self.by_pod.get(&name));
        keys.into_iter()
            .flatten()
            .filter(|(container, _)| *container != of.container_id)
            .filter_map(|key| self.attachments.get(key))
    }
}

impl AttachmentCalls {
    /// Whether it was made and taken back in good order, and its namespace is
    /// gone. What a log tells is read as a whole, and kept.
    fn is_past(&self) -> bool {
        let mut plugins = self.plugins.iter();
        let failed = plugins.any(|plugin| plugin.failed_adds > 0);
        let gone = self.netns.is_none() || self.netns_gone.is_some();
        let named = self.pod.as_ref().and_then(pod_key).is_some();
        self.deleted().is_some() && gone && named && !failed && !self.is_logged()
    }

    /// Whether its sandbox may be there, and nobody takes it down.
    fn may_live(&self) -> bool {
        !self.has_del() && self.netns_gone.is_none()
    }
}
