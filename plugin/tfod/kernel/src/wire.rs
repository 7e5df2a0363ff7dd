//! The protobuf wire format, read without trusting a length.

/// The bytes are not a message in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const LENGTH: u8 = 2;
pub const GROUP: u8 = 3;
pub const END_GROUP: u8 = 4;
pub const FIXED32: u8 = 5;
/// The limit of protobuf for nested groups.
const MAX_DEPTH: usize = 100;

/// A field of a message: its number, its wire type, and the bytes of its value.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    pub number: u32,
    pub wire: u8,
    pub value: &'a [u8],
}

/// A cursor: the bytes that have not been read yet.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads a base-128 varint of at most ten bytes; only one bit of the tenth byte counts.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.0 {
            [first, ref tail @ ..] if first < 0x80 => {
                self.0 = tail;
                Ok(u64::from(first))
            }
            [first, second, ref tail @ ..] if second < 0x80 => {
                self.0 = tail;
                Ok(u64::from(first & 0x7F) | u64::from(second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (index, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * index);
            if byte < 0x80 {
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    #[inline]
    fn take(&mut self, count: u64) -> Result<&'a [u8], Malformed> {
        if count > self.0.len() as u64 {
            return Err(Malformed);
        }
        let (value, tail) = self.0.split_at(count as usize);
        self.0 = tail;
        Ok(value)
    }

    /// Reads a length, and as many bytes after it.
    #[inline]
    pub fn delimited(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.varint()?;
        self.take(length)
    }

    fn tag(&mut self) -> Result<(u32, u8), Malformed> {
        let tag = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        if tag < 8 {
            return Err(Malformed);
        }
        Ok((tag >> 3, (tag & 7) as u8))
    }

    /// Reads the next field; a group is one field.
    pub fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let (number, wire) = self.tag()?;
        let start = self.0;
        let value = match wire {
            LENGTH => self.delimited()?,
            GROUP => {
                self.skip_group(number)?;
                &start[..start.len() - self.0.len()]
            }
            _ => self.skip(wire)?,
        };
        Ok(Field { number, wire, value })
    }

    fn skip(&mut self, wire: u8) -> Result<&'a [u8], Malformed> {
        let start = self.0;
        match wire {
            VARINT => self.varint().map(|_| &start[..start.len() - self.0.len()]),
            FIXED64 => self.take(8),
            FIXED32 => self.take(4),
            LENGTH => self.delimited(),
            _ => Err(Malformed),
        }
    }

    /// Skips a group up to its end tag, with a list of the open groups instead of recursion.
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            match self.tag()? {
                (number, GROUP) if open.len() < MAX_DEPTH => open.push(number),
                (number, END_GROUP) if number == innermost => {
                    open.pop();
                }
                (_, wire) => {
                    self.skip(wire)?;
                }
            }
        }
        Ok(())
    }
}
