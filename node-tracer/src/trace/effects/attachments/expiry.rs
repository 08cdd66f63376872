//! Attachments of which nothing is left, forgotten: a node makes and takes back
//! sandboxes for months.

use std::time::{Duration, Instant};

use super::{Attachments, Key, forget, name_of};

/// How long an attachment of which nothing is left is remembered: what may
/// still come of a DEL has come by then.
const KEPT: Duration = Duration::from_secs(600);

impl Attachments {
    /// Its last DEL was looked at: whether all was seen, and nothing is left of
    /// what its ADD has made.
    pub(in crate::trace::effects) fn taken_back(&mut self, key: &Key, clean: bool, now: Instant) {
        self.is_not_past(key);
        // One that was added again meanwhile is another.
        let attachment = self.attachments.get_mut(key);
        if let Some(attachment) = attachment.filter(|it| it.leaving && clean) {
            attachment.clean = true;
            self.is_past(key, now);
        }
    }

    /// It is called for again, or something of it is there after all.
    pub(super) fn is_not_past(&mut self, key: &Key) {
        if let Some(attachment) = self.attachments.get_mut(key) {
            attachment.clean = false;
            if let Some(since) = attachment.past.take() {
                self.past.remove(&(since, key.clone()));
            }
        }
    }

    /// If nothing is left of it, begins to wait.
    pub(super) fn is_past(&mut self, key: &Key, now: Instant) {
        let attachment = self.attachments.get_mut(key);
        if let Some(it) = attachment.filter(|it| it.clean && it.netns.is_none()) {
            it.past.get_or_insert(now);
            self.past.extend(it.past.map(|since| (since, key.clone())));
        }
    }

    /// Forgets attachments of which nothing has been left for [a while](KEPT).
    pub(in crate::trace::effects) fn forget_past(&mut self, now: Instant) {
        while let Some((since, _)) = self.past.first()
            && now.saturating_duration_since(*since) >= KEPT
            && let Some((_, key)) = self.past.pop_first()
        {
            self.remove(key);
        }
    }

    /// Of too many, the one that was called for longest ago.
    pub(super) fn forget_oldest(&mut self) {
        if let Some((_, key)) = self.ages.pop_first() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) {
        let Some(old) = self.attachments.remove(&key) else {
            return;
        };
        self.ages.remove(&old.age);
        if let Some(since) = old.past {
            self.past.remove(&(since, key.clone()));
        }
        if let Some(name) = old.pod.as_ref().and_then(name_of) {
            forget(&mut self.by_pod, &name, &key);
        }
        if let Some(netns) = old.netns {
            forget(&mut self.by_inode, &netns.inode, &key);
        }
        self.forgotten.push(key);
    }

    /// What was forgotten, since the last time.
    pub(in crate::trace::effects) fn take_forgotten(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.forgotten)
    }
}
