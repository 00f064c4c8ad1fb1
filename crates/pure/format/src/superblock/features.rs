//! The feature map of a superblock, which marks the optional fields that are valid. Derived from the fields on writing.

bitflags::bitflags! {
    /// Feature bits. Names as in Linux `md_p.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Features: u32 {
        /// A bitmap at `bitmap_offset`.
        const BITMAP_OFFSET = 0x1;
        /// The member is valid below `recovery_offset` only.
        const RECOVERY_OFFSET = 0x2;
        /// The reshape fields are valid.
        const RESHAPE_ACTIVE = 0x4;
        /// The bad-block log is not empty.
        const BAD_BLOCKS = 0x8;
        /// The member is the replacement of its slot's other member.
        const REPLACEMENT = 0x10;
        /// The reshape runs from high to low; only with an unchanged number of slots.
        const RESHAPE_BACKWARDS = 0x20;
        /// `new_offset` is not zero.
        const NEW_OFFSET = 0x40;
        /// The bitmap is enough to finish the recovery.
        const RECOVERY_BITMAP = 0x80;
        /// The array belongs to a cluster.
        const CLUSTERED = 0x100;
        /// The array has a journal device.
        const JOURNAL = 0x200;
        /// A partial parity log with a single header.
        const PPL = 0x400;
        /// A partial parity log that is a ring of units.
        const MULTIPLE_PPLS = 0x800;
        /// `layout` of a RAID0 is valid.
        const RAID0_LAYOUT = 0x1000;
    }
}

/// Names of the set bits, unknown ones as a number, joined with ", "; "none" for an empty map.
impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut first = true;
        for (name, _) in self.iter_names() {
            write!(f, "{}{name}", if first { "" } else { ", " })?;
            first = false;
        }
        let unknown = self.bits() & !Features::all().bits();
        if unknown != 0 {
            write!(f, "{}{unknown:#x}", if first { "" } else { ", " })?;
        }
        Ok(())
    }
}
