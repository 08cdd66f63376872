//! Writes BTF for tests, of `btf` and of `facts`.

use super::{MAGIC, kind};

/// A BTF blob in the making. Every method that adds a type returns its
/// number.
pub struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    pub fn new() -> Self {
        Self {
            types: Vec::new(),
            strings: vec![0],
            count: 0,
        }
    }

    /// Adds a string; for members given as raw words.
    pub fn name(&mut self, name: &str) -> u32 {
        if name.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(name.as_bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
    }

    /// Any type: kind and flag, number of entries, own data.
    pub fn raw(&mut self, name: &str, info: u32, refers: u32, data: &[u32]) -> u32 {
        let name = self.name(name);
        self.words(&[name, info, refers]);
        self.words(data);
        self.count += 1;
        self.count
    }

    pub fn int(&mut self) -> u32 {
        self.raw("int", kind::INT << 24, 4, &[32])
    }

    pub fn modifier(&mut self, kind: u32, name: &str, refers: u32) -> u32 {
        self.raw(name, kind << 24, refers, &[])
    }

    /// A struct of `(name, type, offset in bits)`.
    pub fn aggregate(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let mut data = Vec::new();
        for &(name, ty, bits) in members {
            let name = self.name(name);
            data.extend([name, ty, bits]);
        }
        self.raw(name, kind << 24 | members.len() as u32, 0, &data)
    }

    pub fn structure(&mut self, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        self.aggregate(kind::STRUCT, name, members)
    }

    /// A struct with bit-fields, of `(name, offset in bits, width)`; width 0 is
    /// no bit-field.
    pub fn flags(&mut self, name: &str, of: u32, members: &[(&str, u32, u32)]) -> u32 {
        let mut data = Vec::new();
        for &(name, bits, width) in members {
            data.extend([self.name(name), of, width << 24 | bits]);
        }
        let info = 1 << 31 | kind::STRUCT << 24 | members.len() as u32;
        self.raw(name, info, 0, &data)
    }

    pub fn proto(&mut self, params: u32) -> u32 {
        let data = vec![0; 2 * params as usize];
        self.raw("", kind::FUNC_PROTO << 24 | params, 0, &data)
    }

    pub fn func(&mut self, name: &str, params: u32) -> u32 {
        let proto = self.proto(params);
        self.modifier(kind::FUNC, name, proto)
    }

    /// A tracepoint that hands over `arguments`.
    pub fn tracepoint(&mut self, name: &str, arguments: u32) -> u32 {
        let proto = self.proto(arguments + 1);
        let pointer = self.modifier(kind::PTR, "", proto);
        self.modifier(kind::TYPEDEF, &format!("btf_trace_{name}"), pointer)
    }

    pub fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        for word in [24, 0, types, types, strings] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(self.types);
        bytes.extend(self.strings);
        bytes
    }
}
