//! How often something is told that somebody may do without end.
//!
//! So many times in a minute, then in two minutes, in four, up to an hour. Who
//! has done nothing for an hour begins anew.

use node_tracer_ebpf::record::{Owner, owner};

use super::SECOND;

/// Of what one does, so much is told one by one.
pub(super) const SINGLY: u32 = 16;
/// Of what all do together, so much.
pub(super) const SINGLY_OF_ALL: u32 = 64;
/// Of each container so much is told whatever the others do, of as many as are
/// told apart.
const OF_EACH_CONTAINER: u32 = 2;
/// Owners that are told apart.
pub(super) const MAX_OWNERS: usize = 1_024;
pub(super) const MINUTE: u64 = 60 * SECOND;
pub(super) const HOUR: u64 = 60 * MINUTE;

/// What was told of somebody; see the module's documentation. Times are the
/// kernel's, monotonic ns.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// The time that it is for, and how long that is.
    since: u64,
    period: u64,
    spent: u32,
    /// When it was last asked.
    asked: u64,
}

impl Budget {
    /// Whether one more can be told, of so many.
    pub(super) fn has_room(&mut self, time: u64, budget: u32) -> bool {
        let is_over = time.saturating_sub(self.since) >= self.period;
        if self.period == 0 || !self.was_asked(time, HOUR) {
            (self.since, self.period, self.spent) = (time, MINUTE, 0);
        } else if is_over {
            (self.since, self.spent) = (time, 0);
            self.period = (2 * self.period).min(HOUR);
        }
        self.asked = self.asked.max(time);
        self.spent < budget
    }

    pub(super) fn spend(&mut self) {
        self.spent += 1;
    }

    /// Whether it was asked within that time.
    pub(super) fn was_asked(&self, now: u64, within: u64) -> bool {
        self.period > 0 && now.saturating_sub(self.asked) < within
    }
}

/// Budgets of many: each has one of its own, and all together have one.
#[derive(Debug)]
pub(super) struct Shared {
    all: Budget,
    of_each: u32,
}

impl Shared {
    /// Of each so much is told however much all do.
    pub(super) fn new(of_each: u32) -> Self {
        Self {
            all: Budget::default(),
            of_each,
        }
    }

    /// The same for something else, of which nothing has been told.
    pub(super) fn anew(&self) -> Self {
        Self::new(self.of_each)
    }

    /// Whether one more is told of who has this budget; then it is spent.
    pub(super) fn admits(&mut self, own: &mut Budget, time: u64) -> bool {
        let of_each = self.of_each * MAX_OWNERS as u32;
        let most = match self.all.has_room(time, SINGLY_OF_ALL) {
            true => SINGLY,
            false if self.all.has_room(time, SINGLY_OF_ALL + of_each) => self.of_each,
            false => 0,
        };
        let admits = own.has_room(time, most);
        if admits {
            own.spend();
            self.all.spend();
        }
        admits
    }
}

/// The same for users and for containers, so that no user takes anything from a
/// container.
#[derive(Debug)]
pub(super) struct Apart<T> {
    users: T,
    containers: T,
}

impl<T> Apart<T> {
    /// Both, made with their budgets.
    pub(super) fn new(make: impl Fn(Shared) -> T) -> Self {
        Self {
            users: make(Shared::new(0)),
            containers: make(Shared::new(OF_EACH_CONTAINER)),
        }
    }

    /// The one that an owner belongs to.
    pub(super) fn of(&mut self, owner: Owner) -> &mut T {
        match owner.kind {
            owner::CONTAINER | owner::PROCESSES => &mut self.containers,
            _ => &mut self.users,
        }
    }

    pub(super) fn both(&mut self) -> [&mut T; 2] {
        [&mut self.users, &mut self.containers]
    }
}
