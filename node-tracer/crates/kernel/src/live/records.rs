//! Kernel records, one by one: into the tables that they belong to, and out
//! as events.

use std::net::IpAddr;

use node_tracer_ebpf::record::{
    self, AddressRecord, NetnsRecord, Owner, Task as KernelTask, VictimRecord,
};

use super::{
    AFTER_CLEANUP, AFTER_DEVICE, BATCH, HOLDERS_AFTER, HOLDERS_AFTER_MAKING, Live,
    cni::{Ended, Parent, Started},
    inventory,
    nets::{Change, ListedNet},
    tasks,
};
use crate::ebpf::records::{CniExec, DecodeError, Record};
use event::{Address, Event, Netns, OomKill, Task, What};
use sys::clock::monotonic_now as now;

impl Live {
    /// Takes waiting records; whether there may be more.
    pub fn drain(&mut self, out: &mut Vec<Event>) -> bool {
        let (records, more) = self.fetch();
        self.take_all(records, out);
        more
    }

    /// At most one batch of waiting records, and whether there may be more.
    pub(super) fn fetch(&mut self) -> (Vec<Result<Record, DecodeError>>, bool) {
        let mut records = Vec::new();
        let taken = self.probes.as_mut().map(|probes| {
            let each = |bytes: &[u8]| records.push(Record::decode(bytes));
            probes.drain(BATCH, each)
        });
        (records, taken == Some(BATCH))
    }

    pub(super) fn take_all(
        &mut self,
        records: Vec<Result<Record, DecodeError>>,
        out: &mut Vec<Event>,
    ) {
        let mut changes = Vec::new();
        for record in records {
            match record {
                Ok(record) => self.take(record, &mut changes, out),
                Err(error) => {
                    tracing::debug!("{error}");
                    self.drop("undecodable", 1);
                }
            }
        }
        self.tell(changes, out);
    }

    fn take(&mut self, record: Record, changes: &mut Vec<Change>, out: &mut Vec<Event>) {
        match record {
            Record::NetnsCreated(made) => self.created(&made, changes),
            // Linux 6.19+ does not count references to the initial one: each that is
            // dropped looks like the last. The kernel's programs leave out the node's
            // own; on a node in a container the initial one is another.
            Record::NetnsDying(dying) if self.is_host(&dying.net) => {}
            Record::NetnsDying(dying) => {
                self.nets
                    .dying(dying.net, dying.header.time, dying.task, changes);
            }
            Record::NetnsDestroyed(gone) => {
                self.nets.destroyed(gone.net, gone.header.time, changes);
            }
            Record::CleanupQueued(queued) => {
                self.nets.cleanup_queued(queued.header.time);
                self.due.walk_at(queued.header.time + AFTER_CLEANUP);
            }
            Record::CleanupStarted(started) => {
                self.nets.cleanup_started(started.header.time);
                self.due.walk_at(started.header.time + AFTER_CLEANUP);
            }
            Record::CleanupEnded(ended) => {
                self.nets.cleanup_ended(ended.header.time);
                self.due.walk_at(ended.header.time);
            }
            Record::AddressAdded(added) => self.address(&added, true, changes),
            Record::AddressRemoved(removed) => self.address(&removed, false, changes),
            Record::AddressesChanged(changed) => {
                self.ask_readings();
                self.due.walk_at(changed.header.time);
            }
            Record::DeviceChanged(changed) => {
                self.nets.device_changed(changed.header.time, changed.task);
                self.due.walk_at(changed.header.time + AFTER_DEVICE);
            }
            Record::TaskUnblocked(record) => {
                // Of one that was seen not to be stuck, such as a vfork parent,
                // the end is not told either. One that ended before it was looked
                // at has slept all the same.
                let tid = record.task.tid;
                let time = record.header.time;
                let told = self.told.remove(&tid).is_some() || self.is_counted(tid);
                let harmless = self.not_stuck.remove(&tid) == Some(record.since);
                if told || !harmless && self.tells_end(record.owner, time) {
                    out.extend(self.unblocked(&record.task, record.since, time));
                }
            }
            Record::OomVictim(victim) => self.oom_victim(&victim, out),
            Record::CniExec(exec) => self.cni_exec(&exec, changes, out),
            Record::CniPeek(peek) => {
                if let Some(call) = self.cni.peek(&peek).cloned() {
                    out.push(Event {
                        time: self.time(peek.record.started),
                        what: What::CniStarted { call },
                    });
                }
            }
            Record::CniExit(exit) => {
                let time = exit.record.header.time;
                if let Some(ended) = self.cni.exit(&exit) {
                    self.cni_ended(ended, time, out);
                }
            }
        }
    }

    fn cni_ended(&mut self, ended: Ended, time: u64, out: &mut Vec<Event>) {
        out.push(Event {
            time: self.time(time),
            what: What::CniCall {
                call: ended.call,
                exit_code: ended.exit_code,
                signal: ended.signal,
                duration_ms: (ended.duration / 1000) as f64 / 1000.0,
                result: ended.answer.result,
                error: ended.answer.error,
                unread: ended.answer.unread,
            },
        });
        self.due.walk_at(time);
        self.due.holders_at(time + HOLDERS_AFTER);
    }

    /// A task that is about to be killed. Its cgroup and, where the kernel tells
    /// its ID alone, its name are read now, if it is still there. It often is not:
    /// its parent may have waited for it already, the more so as records that come
    /// close together are taken together. Of a task that was seen in a namespace
    /// before, the owner is known from then.
    fn oom_victim(&mut self, victim: &VictimRecord, out: &mut Vec<Event>) {
        let time = victim.header.time;
        let whose = answers_for(victim, |tid| {
            inventory::owners(&self.procfs, vec![tid]).next()
        });
        if whose != Owner::HOST && !self.kills.of(whose).admits(whose, &victim.task, time) {
            return;
        }
        let owner = self.owners.of(&victim.task);
        let mut task = tasks::task(&victim.task, owner, self.clock);
        if task.pid == 0
            && let Some(found) = self.procfs.task(task.tid)
        {
            task = Task {
                pod_uid: task.pod_uid,
                container_id: task.container_id,
                by_name_alone: task.by_name_alone,
                ..found.task
            };
        }
        if task.pid == 0 {
            task.pid = task.tid;
        }
        let kill = OomKill {
            task,
            ..OomKill::default()
        };
        out.push(Event {
            time: self.time(time),
            what: What::OomKilled { kill },
        });
    }

    /// Looks after the calls that have not ended, for all that is known.
    pub(super) fn ended_unseen(&mut self, time: u64, out: &mut Vec<Event>) {
        let procfs = &self.procfs;
        let ended = self
            .cni
            .ended_unseen(time, |pid, start| procfs.lives(pid, start));
        // Those of untrusted callers are not followed to their end at all cost.
        let lost = ended.iter().filter(|ended| ended.call.trusted);
        self.drop("cni-end-unseen", lost.count() as u64);
        for ended in ended {
            self.cni_ended(ended, time, out);
        }
    }

    pub(super) fn created(&mut self, made: &NetnsRecord, changes: &mut Vec<Change>) {
        let time = made.header.time;
        self.nets.created(made.net, time, made.task, changes);
        let due = now() + HOLDERS_AFTER_MAKING;
        self.made.push((due, made.net.inum));
        self.due.made.get_or_insert(due);
    }

    fn address(&mut self, record: &AddressRecord, added: bool, changes: &mut Vec<Change>) {
        if let Some(address) = address(record)
            && !self
                .nets
                .address(record.net, record.header.time, address, added, changes)
        {
            // Its creation was lost; the list has it.
            self.due.walk_at(record.header.time);
        }
    }

    fn cni_exec(&mut self, exec: &CniExec, changes: &mut Vec<Change>, out: &mut Vec<Event>) {
        let (procfs, owners) = (&self.procfs, &mut self.owners);
        let listener = self.listener;
        let parent = || {
            let task = &exec.parent;
            Parent {
                exe: procfs.exe_name_of_root(task.tgid).ok().flatten(),
                in_pod: owners.in_pod(task),
                is_service: procfs.is_service(task.tgid),
                // Last: it is about all that was read before.
                lives: procfs.still_lives(task.tgid, task.start_boottime),
                listens: listener == Some(task.tgid),
            }
        };
        let started = self.cni.exec(exec, parent);
        let pid = exec.task.tgid;
        if !self.cni.believes(pid)
            && let Some(probes) = &mut self.probes
        {
            probes.is_stranger(pid, exec.time);
        }
        match started {
            Started::Call(call) if !call.trusted => {
                if !self
                    .callers
                    .of(exec.owner)
                    .admits(exec.owner, &exec.task, exec.time)
                {
                    return self.cni.forget(pid);
                }
                out.push(Event {
                    time: self.time(exec.time),
                    what: What::CniStarted { call: *call },
                });
            }
            Started::Call(mut call) => {
                if let Some(probes) = &mut self.probes {
                    probes.is_home(exec.task.mnt_inum);
                }
                if exec.truncated {
                    self.drop("cni-environment-truncated", 1);
                }
                let (caller, path) = (call.parent_pid, call.netns_path.as_str());
                let netns = self.cni.netns_at(caller, path).or_else(|| {
                    let inode = self.procfs.netns_at(caller, path)?;
                    Some(self.netns_called(inode, exec.time, changes))
                });
                if let Some(netns) = netns {
                    // It is told before what is done in it.
                    self.tell(std::mem::take(changes), out);
                    self.cni.set_netns(call.pid, netns);
                    call.netns = Some(netns);
                }
                let time = self.time(exec.time);
                out.push(Event {
                    time,
                    what: What::CniStarted { call: *call },
                });
            }
            Started::Nothing => {}
            Started::TableFull => self.drop("cni-table-full", 1),
        }
    }

    /// The namespace that a plugin is called for; it may be so new that
    /// nothing has told of it yet. It was there at `time`, when the plugin was
    /// executed, which may be a while ago.
    fn netns_called(&mut self, inode: u32, time: u64, changes: &mut Vec<Change>) -> Netns {
        if let Some(netns) = self.nets.claim(inode, time, changes) {
            return netns;
        }
        let start = now();
        let list = self.list_nets(None).ok().flatten();
        let mut seen = list.iter().flat_map(|list| &list.nets);
        if let Some(ListedNet { net, .. }) = seen.find(|seen| seen.net.inum == inode) {
            // A user's own, until now.
            self.user_nets.forget(net);
            self.nets.noticed(*net, start, changes);
        }
        let unknown = Netns {
            inode,
            cookie: None,
        };
        self.nets.claim(inode, time, changes).unwrap_or(unknown)
    }

    pub(super) fn tell(&mut self, changes: Vec<Change>, out: &mut Vec<Event>) {
        for change in changes {
            let (time, what) = match change {
                Change::Created(netns, time, task, user) => {
                    let task = task.map(|task| self.task(&task));
                    let user_ns = self.user_ns(user);
                    let created = What::NetnsCreated {
                        netns,
                        task,
                        user_ns,
                    };
                    (time, created)
                }
                Change::Dying(netns, time, task) => {
                    let task = task.map(|task| self.task(&task));
                    (time, What::NetnsDying { netns, task })
                }
                Change::Destroyed(netns, time) => {
                    self.holders.forget(netns);
                    (time, What::NetnsDestroyed { netns })
                }
                Change::AddressAdded(netns, time, address) => {
                    self.due.holders_at(time + HOLDERS_AFTER);
                    (
                        time,
                        What::AddressAdded {
                            netns,
                            address,
                            found: false,
                            made: None,
                        },
                    )
                }
                Change::AddressFound(netns, time, address) => (
                    time,
                    What::AddressAdded {
                        netns,
                        address,
                        found: true,
                        made: None,
                    },
                ),
                Change::AddressRemoved(netns, time, address) => {
                    (time, What::AddressRemoved { netns, address })
                }
            };
            out.push(Event {
                time: self.time(time),
                what,
            });
        }
        for (netns, user) in self.nets.take_learned() {
            let user_ns = self.user_ns(user);
            if user_ns.is_some() {
                let host = self.nets.host.has(netns.inode);
                let what = What::NetnsFound {
                    netns,
                    host,
                    node: false,
                    user_ns,
                };
                let time = self.time(now());
                out.push(Event { time, what });
            }
        }
    }

    /// Without a look at its cgroup: the tasks of storms are gone at once.
    fn task(&self, task: &KernelTask) -> Task {
        tasks::task(task, None, self.clock)
    }
}

/// Who answers for a task that is about to be killed. Where the kernel tells its
/// ID alone, the record has who wanted memory, who can be anybody if the whole
/// node is short of it. That is all there is if the task is gone already; if its
/// cgroup was short of memory, both are in that.
fn answers_for(victim: &VictimRecord, find: impl FnOnce(u32) -> Option<Owner>) -> Owner {
    let found = match victim.task.tgid {
        0 => find(victim.task.tid),
        _ => None,
    };
    let known = found.filter(|owner| *owner != Owner::default());
    known.unwrap_or(victim.owner)
}

/// The address of a record; `None` if it is of an unknown family.
pub(super) fn address(record: &AddressRecord) -> Option<Address> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(record::text(bytes)).into_owned();
    Some(Address {
        address: ip(record.family, record.address)?,
        prefix: record.prefix,
        ifname: text(&record.ifname),
        link_kind: Some(text(&record.link_kind)).filter(|kind| !kind.is_empty()),
        // What becomes of it is not known yet.
        dad: None,
    })
}

/// An address as the kernel's programs write it; `None` if it is none, or one
/// that is just being taken off, or of an unknown family.
pub(super) fn ip(family: u8, bytes: [u8; 16]) -> Option<IpAddr> {
    let address = match family {
        4 => IpAddr::from(bytes.first_chunk::<4>().copied()?),
        6 => IpAddr::from(bytes),
        _ => return None,
    };
    (!address.is_unspecified()).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node_tracer_ebpf::record::owner;

    #[test]
    fn a_victim_that_is_known_by_its_id_alone_counts_as_its_owners_not_as_the_allocators() {
        let [user, container] = [owner::USER, owner::CONTAINER].map(|kind| Owner { kind, id: 9 });
        let mut victim = VictimRecord {
            owner: user,
            ..VictimRecord::default()
        };
        victim.task.tid = 7;
        assert_eq!(answers_for(&victim, |_| Some(container)), container);
        assert_eq!(answers_for(&victim, |_| None), user, "gone");
        assert_eq!(answers_for(&victim, |_| Some(Owner::default())), user);
        victim.task.tgid = 7;
        assert_eq!(answers_for(&victim, |_| Some(container)), user);
    }
}
