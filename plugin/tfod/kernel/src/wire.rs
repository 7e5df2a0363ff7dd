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

/// A cursor over `buffer[position..end]`; `end` is never beyond the buffer.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    pub buffer: &'a [u8],
    pub position: usize,
    pub end: usize,
}

/// A field of a message: its number, its wire type, and the half-open span of its value.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    pub number: u32,
    pub wire: u8,
    pub start: usize,
    pub end: usize,
}

impl<'a> Reader<'a> {
    pub fn new(buffer: &'a [u8], start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= buffer.len());
        Reader { buffer, position: start, end }
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.position >= self.end
    }

    /// A base-128 varint of at most ten bytes; of the tenth one bit counts.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let bytes = &self.buffer[self.position..self.end];
        if let Some(&first) = bytes.first() {
            if first < 0x80 {
                self.position += 1;
                return Ok(u64::from(first));
            }
        }
        let mut value = 0u64;
        for (place, &byte) in bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7F) << (7 * place);
            if byte < 0x80 {
                self.position += place + 1;
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    /// A length, and the span of so many bytes behind it.
    #[inline]
    pub fn span(&mut self) -> Result<(usize, usize), Malformed> {
        let length = self.varint()?;
        let start = self.position;
        if length > (self.end - start) as u64 {
            return Err(Malformed);
        }
        self.position = start + length as usize;
        Ok((start, self.position))
    }

    /// The next field; a group is one field with all that is in it.
    #[inline]
    pub fn field(&mut self) -> Result<Field, Malformed> {
        let tag = self.varint()?;
        let number = (tag >> 3) as u32;
        if number == 0 || tag > u64::from(u32::MAX) {
            return Err(Malformed);
        }
        let wire = (tag & 7) as u8;
        if wire == LENGTH {
            let (start, end) = self.span()?;
            return Ok(Field { number, wire, start, end });
        }
        let start = self.position;
        match wire {
            GROUP => self.skip_group(number)?,
            _ => self.skip(wire)?,
        }
        Ok(Field { number, wire, start, end: self.position })
    }

    fn skip(&mut self, wire: u8) -> Result<(), Malformed> {
        match wire {
            VARINT => self.varint().map(|_| ()),
            FIXED64 => self.advance(8),
            FIXED32 => self.advance(4),
            LENGTH => self.span().map(|_| ()),
            _ => Err(Malformed),
        }
    }

    pub fn advance(&mut self, count: usize) -> Result<(), Malformed> {
        if self.end - self.position < count {
            return Err(Malformed);
        }
        self.position += count;
        Ok(())
    }

    /// Passes over a group up to its own end tag, with a list of the open ones and no recursion.
    fn skip_group(&mut self, number: u32) -> Result<(), Malformed> {
        let mut open = vec![number];
        while let Some(&innermost) = open.last() {
            let tag = self.varint()?;
            let number = (tag >> 3) as u32;
            if number == 0 || tag > u64::from(u32::MAX) {
                return Err(Malformed);
            }
            match (tag & 7) as u8 {
                GROUP if open.len() < DEEPEST => open.push(number),
                END_GROUP if number == innermost => {
                    open.pop();
                }
                wire => self.skip(wire)?,
            }
        }
        Ok(())
    }
}
