//! A reader for the kernel's own type information (BTF): where a member lies
//! in a struct, and which functions and tracepoints there are with how many
//! parameters.
//!
//! Rust programs have no CO-RE relocations and aya does not show members, so
//! the tracer looks offsets up itself. This is not a general BTF library: it
//! reads one blob in the machine's own byte order, never writes, and answers
//! only these questions. What the answers are used for is in `facts`.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;

/// The members asked for are found after a few hundred; this ends a search in
/// a blob whose anonymous structs contain themselves.
const MAX_MEMBERS: u32 = 100_000;

/// Longest chain of typedefs and qualifiers, and deepest nesting.
const MAX_DEPTH: u32 = 32;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// Why a blob cannot be read as BTF.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// The blob ends inside something.
    #[error("BTF ends within {what} at byte {at}")]
    Truncated {
        /// What was being read.
        what: &'static str,
        at: usize,
    },
    /// Not BTF, or of a machine with the other byte order.
    #[error("BTF magic is {found:#06x}, expected {MAGIC:#06x}")]
    Magic {
        /// The first two bytes.
        found: u16,
    },
    /// A kind newer than this reader: its length is not known, so nothing
    /// after it can be read.
    #[error("BTF type {id} has the unknown kind {kind}")]
    Kind { id: u32, kind: u32 },
    /// A name that does not lie in the string section.
    #[error("BTF type {id} has its name at {at}, outside the strings")]
    Name {
        id: u32,
        /// Offset in the string section.
        at: u32,
    },
}

/// The name spaces of C that matter here.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Space {
    Aggregate,
    Function,
    Typedef,
}

/// The head of a type: 12 bytes, the same for every kind.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    len: usize,
    /// In a struct: member offsets carry a bit-field width.
    flag: bool,
    /// The type referred to, or a size.
    refers: u32,
    /// Where the kind's own data begins in the type section.
    data: usize,
}

impl Type {
    const SIZE: usize = 12;

    fn read(types: &[u8], at: usize) -> Option<Self> {
        let info = word(types, at + 4)?;
        Some(Self {
            name: word(types, at)?,
            // The bits between the documented ones are zero so far; taking
            // them along lets the fields grow into them.
            kind: info >> 24 & 0x7f,
            len: (info & 0x00ff_ffff) as usize,
            flag: info >> 31 == 1,
            refers: word(types, at + 8)?,
            data: at + Self::SIZE,
        })
    }

    /// Length of the kind's own data, `None` for an unknown kind.
    fn data_len(&self) -> Option<usize> {
        Some(match self.kind {
            kind::PTR
            | kind::FWD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNC
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            kind::INT | kind::VAR | kind::DECL_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * self.len,
            kind::ENUM | kind::FUNC_PROTO => 8 * self.len,
            _ => return None,
        })
    }

    fn is_aggregate(&self) -> bool {
        matches!(self.kind, kind::STRUCT | kind::UNION)
    }
}

/// A member of a struct or union.
#[derive(Clone, Copy)]
struct Member {
    bits: u32,
    /// Bits of a bit-field; 0 of anything else.
    width: u32,
    /// The number of its type.
    ty: u32,
}

/// Type information over borrowed bytes: an index of 4 bytes a type and one
/// entry a named struct, union, function and typedef. Drop it with the bytes
/// as soon as the questions are answered.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Where type `n + 1` begins; type 0 is `void` and is not stored.
    starts: Vec<u32>,
    /// The first type of each name. Where two translation units have structs
    /// of one name, the kernel's loader takes the first as well.
    names: HashMap<(Space, &'a [u8]), u32>,
}

impl<'a> Btf<'a> {
    /// Checks the frame of every type and indexes the names. What a type
    /// refers to is checked when it is followed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        const HEADER: BtfError = BtfError::Truncated {
            what: "the header",
            at: 0,
        };
        let magic = bytes.first_chunk().ok_or(HEADER)?;
        let magic = u16::from_ne_bytes(*magic);
        if magic != MAGIC {
            return Err(BtfError::Magic { found: magic });
        }
        // Section offsets count from the end of the header, which may grow.
        let header = word(bytes, 4).ok_or(HEADER)? as usize;
        let section = |what, field| {
            let at = (word(bytes, field).ok_or(HEADER)? as usize).saturating_add(header);
            let len = word(bytes, field + 4).ok_or(HEADER)? as usize;
            bytes
                .get(at..at.saturating_add(len))
                .ok_or(BtfError::Truncated { what, at })
        };
        let types = section("the type section", 8)?;
        let strings = section("the string section", 16)?;

        let mut btf = Self {
            types,
            strings,
            starts: Vec::with_capacity(types.len() / 24),
            names: HashMap::with_capacity(types.len() / 48),
        };
        let mut at = 0;
        while at < types.len() {
            at = btf.index(at)?;
        }
        Ok(btf)
    }

    /// Indexes the type at `at`; returns where the next one begins.
    fn index(&mut self, at: usize) -> Result<usize, BtfError> {
        let truncated = BtfError::Truncated { what: "a type", at };
        let Some(ty) = Type::read(self.types, at) else {
            return Err(truncated);
        };
        self.starts.push(at as u32);
        let id = self.starts.len() as u32;
        let Some(len) = ty.data_len() else {
            return Err(BtfError::Kind { id, kind: ty.kind });
        };
        let space = match ty.kind {
            kind::STRUCT | kind::UNION => Some(Space::Aggregate),
            kind::FUNC => Some(Space::Function),
            kind::TYPEDEF => Some(Space::Typedef),
            _ => None,
        };
        if let Some(space) = space
            && ty.name != 0
        {
            let name = self
                .string(ty.name)
                .ok_or(BtfError::Name { id, at: ty.name })?;
            self.names.entry((space, name)).or_insert(id);
        }
        match ty.data.checked_add(len) {
            Some(next) if next <= self.types.len() => Ok(next),
            _ => Err(truncated),
        }
    }

    /// Byte offset of a member, `path` being `member` or `member.member`.
    /// Members of anonymous structs and unions count as the outer one's, as
    /// in C. `None` if there is no such member, if the path leads through a
    /// pointer or an array, or if a bit-field does not begin on a byte.
    pub fn offset_of(&self, aggregate: &str, path: &str) -> Option<u32> {
        let mut ty = self.find(Space::Aggregate, aggregate);
        let mut bits = 0_u32;
        let mut budget = MAX_MEMBERS;
        for name in path.split('.').filter(|name| !name.is_empty()) {
            let found = self.member(ty?, name.as_bytes(), MAX_DEPTH, &mut budget)?;
            bits = bits.checked_add(found.bits)?;
            ty = self.resolve(found.ty);
        }
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Where a bit-field of one bit lies: the byte offset of the aligned word
    /// that has it, and its mask there (little-endian). `None` if there is no
    /// such member, or if it is anything else.
    pub fn bit_of(&self, aggregate: &str, name: &str) -> Option<(u32, u32)> {
        let ty = self.find(Space::Aggregate, aggregate)?;
        let mut budget = MAX_MEMBERS;
        let found = self.member(ty, name.as_bytes(), MAX_DEPTH, &mut budget)?;
        (found.width == 1).then_some((found.bits / 32 * 4, 1 << (found.bits % 32)))
    }

    /// Bytes of a struct or union.
    pub fn size_of(&self, aggregate: &str) -> Option<u32> {
        let found = self.find(Space::Aggregate, aggregate)?;
        Some(found.refers)
    }

    /// Whether the kernel has a function of this name.
    pub fn has_func(&self, name: &str) -> bool {
        self.find(Space::Function, name).is_some()
    }

    /// Number of parameters of a function.
    pub fn func_params(&self, name: &str) -> Option<usize> {
        self.params(self.find(Space::Function, name)?.refers)
    }

    /// Number of arguments a tracepoint hands to a `tp_btf` program, `None`
    /// if the kernel has no such tracepoint.
    pub fn tracepoint_params(&self, name: &str) -> Option<usize> {
        let handler = self.find(Space::Typedef, &format!("btf_trace_{name}"))?;
        let pointer = self.resolve(handler.refers)?;
        if pointer.kind != kind::PTR {
            return None;
        }
        // The first parameter is the tracepoint's own `void *__data`.
        self.params(pointer.refers)?.checked_sub(1)
    }

    fn params(&self, proto: u32) -> Option<usize> {
        let proto = self.resolve(proto)?;
        (proto.kind == kind::FUNC_PROTO).then_some(proto.len)
    }

    fn find(&self, space: Space, name: &str) -> Option<Type> {
        self.get(*self.names.get(&(space, name.as_bytes()))?)
    }

    fn get(&self, id: u32) -> Option<Type> {
        let start = *self.starts.get(id.checked_sub(1)? as usize)?;
        Type::read(self.types, start as usize)
    }

    /// The type behind typedefs, qualifiers and type tags.
    fn resolve(&self, mut id: u32) -> Option<Type> {
        for _ in 0..MAX_DEPTH {
            let ty = self.get(id)?;
            match ty.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    id = ty.refers
                }
                _ => return Some(ty),
            }
        }
        None
    }

    /// Looks a member up.
    fn member(&self, aggregate: Type, name: &[u8], depth: u32, budget: &mut u32) -> Option<Member> {
        let depth = depth.checked_sub(1)?;
        if !aggregate.is_aggregate() {
            return None;
        }
        for index in 0..aggregate.len {
            *budget = budget.checked_sub(1)?;
            let at = aggregate.data + 12 * index;
            let id = word(self.types, at + 4)?;
            let offset = word(self.types, at + 8)?;
            let (bits, width) = if aggregate.flag {
                (offset & 0x00ff_ffff, offset >> 24)
            } else {
                (offset, 0)
            };
            match word(self.types, at)? {
                0 => {
                    let inner = self.resolve(id);
                    if let Some(inner) =
                        inner.and_then(|inner| self.member(inner, name, depth, budget))
                    {
                        return Some(Member {
                            bits: bits.checked_add(inner.bits)?,
                            ..inner
                        });
                    }
                }
                at if self.string(at) == Some(name) => {
                    return Some(Member {
                        bits,
                        width,
                        ty: id,
                    });
                }
                _ => {}
            }
        }
        None
    }

    fn string(&self, at: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(at as usize..)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        rest.get(..end)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

#[cfg(test)]
pub mod build;
#[cfg(test)]
mod tests;
