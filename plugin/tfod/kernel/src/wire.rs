//! The protobuf wire format, read without trusting a length.

/// The bytes are not the wire form of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

pub const VARINT: u8 = 0;
pub const FIXED64: u8 = 1;
pub const LENGTH: u8 = 2;
pub const GROUP: u8 = 3;
pub const END_GROUP: u8 = 4;
pub const FIXED32: u8 = 5;
/// As protobuf's own limit of nesting.
const DEEPEST: usize = 100;

/// A field of a message: its number, its wire type, and the bytes of its value.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    pub number: u32,
    pub wire: u8,
    pub value: &'a [u8],
}

/// A cursor: the bytes that are still to be read.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A base-128 varint of at most ten bytes; of the tenth one bit counts.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match *self.0 {
            [first, ref rest @ ..] if first < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first))
            }
            [first, second, ref rest @ ..] if second < 0x80 => {
                self.0 = rest;
                Ok(u64::from(first & 0x7F) | u64::from(second) << 7)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for (place, &byte) in self.0.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                self.0 = &self.0[place + 1..];
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
        let (value, rest) = self.0.split_at(count as usize);
        self.0 = rest;
        Ok(value)
    }

    /// A length, and so many bytes behind it.
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

    /// The next field; a group is one field with all that is in it.
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

    /// Passes over a group up to its own end tag, with a list of the open ones and no recursion.
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            match self.tag()? {
                (number, GROUP) if open.len() < DEEPEST => open.push(number),
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
