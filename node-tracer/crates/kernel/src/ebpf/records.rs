//! The ring buffer's bytes as records. A record of unknown kind or length is
//! an error to be counted, never skipped in silence.

use node_tracer_ebpf::record::{
    self, AddressRecord, CNI_EXEC_FIXED, CniExecRecord, CniExitRecord, Header, NetnsRecord, Owner,
    Task, TaskRecord, UnblockedRecord, VictimRecord, kind,
};

/// A record of [`map::EVENTS`](node_tracer_ebpf::map::EVENTS).
#[derive(Clone, Debug)]
pub enum Record {
    /// A network namespace was made.
    NetnsCreated(NetnsRecord),
    /// Its last reference is gone.
    NetnsDying(NetnsRecord),
    /// It was taken down.
    NetnsDestroyed(NetnsRecord),
    /// `cleanup_net` was queued.
    CleanupQueued(TaskRecord),
    /// `cleanup_net` has started.
    CleanupStarted(TaskRecord),
    /// `cleanup_net` has returned.
    CleanupEnded(TaskRecord),
    AddressAdded(AddressRecord),
    AddressRemoved(AddressRecord),
    /// Some IPv4 address changed.
    AddressesChanged(TaskRecord),
    DeviceChanged(TaskRecord),
    /// A long stall has ended.
    TaskUnblocked(UnblockedRecord),
    /// A task was chosen to be killed, as memory is short.
    OomVictim(VictimRecord),
    /// A CNI plugin has started.
    CniExec(CniExec),
    /// A CNI plugin has ended.
    CniExit(CniExit),
    /// What lies in the pipes of one that runs.
    CniPeek(CniExit),
}

/// A [`CniExitRecord`] with what follows it.
#[derive(Clone, Debug)]
pub struct CniExit {
    pub record: CniExitRecord,
    /// What was written to the plugin's standard input, the beginning of it.
    /// It can hold tokens.
    pub config: Vec<u8>,
    /// What it wrote to standard output.
    pub output: Vec<u8>,
}

/// A [`CniExecRecord`] of the length it has.
#[derive(Clone, Debug)]
pub struct CniExec {
    /// When, monotonic ns.
    pub time: u64,
    pub task: Task,
    pub parent: Task,
    /// Who answers for it.
    pub owner: Owner,
    /// Path it was started by.
    pub path: Vec<u8>,
    /// `CNI_*` variables, `NAME=value`, each with a NUL at the end.
    pub env: Vec<u8>,
    /// Variables were left out or cut.
    pub truncated: bool,
}

/// Bytes that are no record.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Too short for what it says it is.
    #[error("a record of kind {kind} with {len} bytes is too short")]
    Short {
        /// Its kind, 0 if not even that could be read.
        kind: u32,
        len: usize,
    },
    /// Not a kind of this version.
    #[error("a record of unknown kind {0}")]
    Kind(u32),
}

impl Record {
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let short = |kind| DecodeError::Short {
            kind,
            len: bytes.len(),
        };
        let Header { kind, .. } = record::read(bytes).ok_or(short(0))?;
        let netns = || record::read::<NetnsRecord>(bytes).ok_or(short(kind));
        let task = || record::read::<TaskRecord>(bytes).ok_or(short(kind));
        let address = || record::read::<AddressRecord>(bytes).ok_or(short(kind));
        Ok(match kind {
            kind::NETNS_CREATED => Self::NetnsCreated(netns()?),
            kind::NETNS_DYING => Self::NetnsDying(netns()?),
            kind::NETNS_DESTROYED => Self::NetnsDestroyed(netns()?),
            kind::CLEANUP_QUEUED => Self::CleanupQueued(task()?),
            kind::CLEANUP_STARTED => Self::CleanupStarted(task()?),
            kind::CLEANUP_ENDED => Self::CleanupEnded(task()?),
            kind::ADDRESS_ADDED => Self::AddressAdded(address()?),
            kind::ADDRESS_REMOVED => Self::AddressRemoved(address()?),
            kind::ADDRESSES_CHANGED => Self::AddressesChanged(task()?),
            kind::DEVICE_CHANGED => Self::DeviceChanged(task()?),
            kind::TASK_UNBLOCKED => {
                Self::TaskUnblocked(record::read::<UnblockedRecord>(bytes).ok_or(short(kind))?)
            }
            kind::OOM_VICTIM => {
                Self::OomVictim(record::read::<VictimRecord>(bytes).ok_or(short(kind))?)
            }
            kind::CNI_EXEC => Self::CniExec(cni_exec(bytes).ok_or(short(kind))?),
            kind::CNI_EXIT => Self::CniExit(cni_exit(bytes).ok_or(short(kind))?),
            kind::CNI_PEEK => Self::CniPeek(cni_exit(bytes).ok_or(short(kind))?),
            other => return Err(DecodeError::Kind(other)),
        })
    }
}

fn cni_exec(bytes: &[u8]) -> Option<CniExec> {
    // The record ends where its environment does, so it is not read whole.
    let at = |offset: usize| bytes.get(offset..);
    let header: Header = record::read(bytes)?;
    let task = record::read(at(std::mem::offset_of!(CniExecRecord, task))?)?;
    let parent = record::read(at(std::mem::offset_of!(CniExecRecord, parent))?)?;
    let owner = record::read(at(std::mem::offset_of!(CniExecRecord, owner))?)?;
    let path = std::mem::offset_of!(CniExecRecord, path);
    let path = bytes.get(path..path + record::PATH_LEN)?;
    let number = |offset: usize| -> Option<u32> {
        Some(u32::from_ne_bytes(
            bytes.get(offset..offset + 4)?.try_into().ok()?,
        ))
    };
    let env_len = number(std::mem::offset_of!(CniExecRecord, env_len))? as usize;
    let truncated = number(std::mem::offset_of!(CniExecRecord, truncated))?;
    Some(CniExec {
        time: header.time,
        task,
        parent,
        owner,
        path: record::text(path).to_vec(),
        env: cni_variables(bytes.get(CNI_EXEC_FIXED..CNI_EXEC_FIXED.checked_add(env_len)?)?),
        truncated: truncated != 0,
    })
}

fn cni_exit(bytes: &[u8]) -> Option<CniExit> {
    let record: CniExitRecord = record::read(bytes)?;
    let rest = bytes.get(size_of::<CniExitRecord>()..)?;
    let (config, rest) = rest.split_at_checked(record.config_len as usize)?;
    let output = rest.get(..record.output_len as usize)?;
    Some(CniExit {
        record,
        config: config.to_vec(),
        output: output.to_vec(),
    })
}

/// Only the variables whose names start with `CNI_`: old kernels hand over the
/// whole environment, in which there may be secrets.
fn cni_variables(env: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for variable in env
        .split(|&byte| byte == 0)
        .filter(|v| v.starts_with(b"CNI_"))
    {
        kept.extend_from_slice(variable);
        kept.push(0);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_cni_is_dropped() {
        let env = cni_variables(b"PATH=/bin\0CNI_COMMAND=ADD\0TOKEN=x\0CNI_IFNAME=eth0");
        assert_eq!(env, b"CNI_COMMAND=ADD\0CNI_IFNAME=eth0\0");
    }

    fn cni_bytes(env: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; CNI_EXEC_FIXED];
        bytes[..4].copy_from_slice(&kind::CNI_EXEC.to_ne_bytes());
        let path = std::mem::offset_of!(CniExecRecord, path);
        bytes[path..path + 4].copy_from_slice(b"/p/x");
        let len = std::mem::offset_of!(CniExecRecord, env_len);
        bytes[len..len + 4].copy_from_slice(&(env.len() as u32).to_ne_bytes());
        bytes.extend(env);
        bytes
    }

    #[test]
    fn a_plugin_record_ends_with_its_environment() {
        let Ok(Record::CniExec(exec)) = Record::decode(&cni_bytes(b"CNI_COMMAND=ADD\0")) else {
            panic!("not a CNI record");
        };
        assert_eq!(exec.env, b"CNI_COMMAND=ADD\0");
        assert_eq!(exec.path, b"/p/x");
        assert!(!exec.truncated);
    }

    #[test]
    fn a_plugin_record_that_claims_more_than_it_has_is_refused() {
        let mut bytes = cni_bytes(b"CNI_COMMAND=ADD\0");
        bytes.pop();
        assert!(matches!(
            Record::decode(&bytes),
            Err(DecodeError::Short { .. })
        ));
    }

    #[test]
    fn no_prefix_of_a_record_panics() {
        let bytes = cni_bytes(b"CNI_COMMAND=ADD\0");
        for len in 0..bytes.len() {
            assert!(Record::decode(&bytes[..len]).is_err());
        }
        for kind in 0..64u32 {
            let mut bytes = vec![0xff; 512];
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            for len in 0..bytes.len() {
                let _ = Record::decode(&bytes[..len]);
            }
        }
    }

    #[test]
    fn a_plugins_end_is_followed_by_what_lay_in_its_pipes() {
        let mut bytes = vec![0; size_of::<CniExitRecord>()];
        bytes[..4].copy_from_slice(&kind::CNI_EXIT.to_ne_bytes());
        for (field, len) in [
            (std::mem::offset_of!(CniExitRecord, config_len), 3_u32),
            (std::mem::offset_of!(CniExitRecord, output_len), 2),
        ] {
            bytes[field..field + 4].copy_from_slice(&len.to_ne_bytes());
        }
        bytes.extend(b"abcde");
        let Ok(Record::CniExit(exit)) = Record::decode(&bytes) else {
            panic!("no end of a plugin");
        };
        assert_eq!(
            (exit.config, exit.output),
            (b"abc".to_vec(), b"de".to_vec())
        );
        bytes.pop();
        assert!(Record::decode(&bytes).is_err());
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let mut bytes = vec![0; 64];
        bytes[0] = 99;
        assert_eq!(Record::decode(&bytes).err(), Some(DecodeError::Kind(99)));
    }
}
