use super::*;

fn header(opcode: u32) -> Header {
    Header { len: 0, opcode, unique: 1, ino: 5, caller: Caller { uid: 7, gid: 8 } }
}

fn body(parts: &[&dyn AsRef<[u8]>]) -> Vec<u8> {
    parts.iter().flat_map(|part| part.as_ref().to_vec()).collect()
}

fn parsed(opcode: u32, body: &[u8]) -> Result<Work, Errno> {
    parse(&header(opcode), body)
}

#[test]
fn a_header_says_who_asks_for_what() {
    let mut bytes = Vec::new();
    bytes.extend(56u32.to_ne_bytes());
    bytes.extend(opcode::LOOKUP.to_ne_bytes());
    bytes.extend(9u64.to_ne_bytes());
    bytes.extend(5u64.to_ne_bytes());
    bytes.extend([7u32, 8, 1000, 0].iter().flat_map(|field| field.to_ne_bytes()));
    let header = Header::parse(&bytes).expect("it is whole");
    assert_eq!((header.len, header.opcode, header.unique, header.ino), (56, 1, 9, 5));
    assert_eq!((header.caller.uid, header.caller.gid), (7, 8));
    assert!(Header::parse(&bytes[..30]).is_none());
}

#[test]
fn modes_of_fallocate_are_told_apart_and_others_refused() {
    assert_eq!(allocate_how(0), Some(Allocate::Reserve { keep_size: false }));
    assert_eq!(allocate_how(1), Some(Allocate::Reserve { keep_size: true }));
    assert_eq!(allocate_how(3), Some(Allocate::PunchHole));
    assert_eq!(allocate_how(0x10), Some(Allocate::ZeroRange { keep_size: false }));
    assert_eq!(allocate_how(0x11), Some(Allocate::ZeroRange { keep_size: true }));
    // A hole without KEEP_SIZE, collapse, insert, unshare.
    for mode in [2, 8, 0x20, 0x40, 0x12, u32::MAX] {
        assert_eq!(allocate_how(mode), None, "{mode}");
    }
}

#[test]
fn new_files_get_the_bits_that_the_umask_leaves() {
    let new = |mode, umask| node(Kind::File, mode, umask, 0).to_make().masked();
    assert_eq!(new(0o100666, 0o022), 0o644);
    assert_eq!(new(0o47777, 0), 0o7777);
}

#[test]
fn times_before_1970_are_negative_seconds_and_nanoseconds_that_count_upwards() {
    let valid = FATTR_ATIME | FATTR_MTIME_NOW | FATTR_MTIME | FATTR_UID;
    let bytes = body(&[
        &valid.to_ne_bytes(),
        &[0; 12],
        &99u64.to_ne_bytes(),
        &[0; 8],
        &(-2i64).to_ne_bytes(),
        &[0; 16],
        &800_000_000u32.to_ne_bytes(),
        &[0; 8],
        &0o644u32.to_ne_bytes(),
        &[0; 4],
        &1000u32.to_ne_bytes(),
        &[0; 8],
    ]);
    assert_eq!(bytes.len(), 88);
    let Ok(Work::SetAttr { set, caller, .. }) = parsed(opcode::SETATTR, &bytes) else {
        panic!("it is asked for attributes")
    };
    assert_eq!(set.atime, Some(SetTime::To(Time { seconds: -2, nanos: 800_000_000 })));
    assert_eq!((set.mtime, set.uid), (Some(SetTime::Now), Some(1000)));
    assert_eq!((set.ctime, set.size, set.perm, set.gid), (None, None, None, None));
    assert_eq!(caller.uid, 7);
}

#[test]
fn names_end_with_a_zero_byte_and_two_follow_each_other() {
    let bytes = body(&[&6u64.to_ne_bytes(), &2u32.to_ne_bytes(), &[0; 4], b"old\0new\0"]);
    let Ok(Work::Rename { from, to, flags }) = parsed(opcode::RENAME2, &bytes) else {
        panic!("it is asked to rename")
    };
    assert_eq!((from.0, &*from.1, to.0, &*to.1), (5, &b"old"[..], 6, &b"new"[..]));
    assert_eq!(flags, RENAME_EXCHANGE);
    let unknown = body(&[&6u64.to_ne_bytes(), &8u32.to_ne_bytes(), &[0; 4], b"old\0new\0"]);
    assert!(matches!(parsed(opcode::RENAME2, &unknown), Err(Errno::INVAL)));
    let old = body(&[&6u64.to_ne_bytes(), b"old\0new\0"]);
    assert!(matches!(parsed(opcode::RENAME, &old), Ok(Work::Rename { .. })));
    let symlink = parsed(opcode::SYMLINK, b"name\0a/target\0");
    let Ok(Work::Make { name, node, .. }) = symlink else { panic!("it is asked to make") };
    assert_eq!((&*name, &*node.target), (&b"name"[..], &b"a/target"[..]));
}

#[test]
fn what_the_kernel_does_by_itself_is_not_implemented_here() {
    // Flush, opendir, locks, access, interrupt, bmap, poll, and one that there is not yet.
    for opcode in [25, 27, 31, 32, 33, 34, 36, 37, 40, 4000] {
        assert!(matches!(parsed(opcode, &[0; 64]), Err(Errno::NOSYS)), "{opcode}");
    }
    assert!(matches!(parsed(opcode::IOCTL, &[0; 64]), Err(Errno::NOTTY)));
}

#[test]
fn a_copy_says_from_where_to_where() {
    let body = body(&[
        &7u64.to_ne_bytes(),
        &100u64.to_ne_bytes(),
        &9u64.to_ne_bytes(),
        &8u64.to_ne_bytes(),
        &200u64.to_ne_bytes(),
        &50u64.to_ne_bytes(),
        &0u64.to_ne_bytes(),
    ]);
    let parsed_one = parsed(opcode::COPY_FILE_RANGE, &body);
    let Ok(Work::CopyRange { from, to, len, .. }) = parsed_one else {
        panic!("it is asked to copy")
    };
    assert_eq!((from.1, to, len), (100, (9, 200), 50));
    let flagged = [&body[..48], &1u64.to_ne_bytes()[..]].concat();
    assert!(matches!(parsed(opcode::COPY_FILE_RANGE, &flagged), Err(Errno::INVAL)));
}

#[test]
fn a_batch_says_how_many_it_has_and_is_not_believed() {
    let entry = |ino: u64, count: u64| body(&[&ino.to_ne_bytes(), &count.to_ne_bytes()]);
    let bytes = body(&[&2u32.to_ne_bytes(), &[0; 4], &entry(5, 1), &entry(6, 2), &entry(7, 3)]);
    assert_eq!(forgets(&bytes).collect::<Vec<_>>(), [(5, 1), (6, 2)]);
    assert_eq!(forgets(&bytes[..30]).collect::<Vec<_>>(), [(5, 1)]);
    assert_eq!(forgets(&[1, 0]).count(), 0);
}

#[test]
fn a_request_that_is_cut_short_or_full_of_ones_is_refused() {
    for opcode in 0..60 {
        for len in 0..100 {
            for byte in [0, 1, 0x41, 0xff] {
                let bytes = vec![byte; len];
                // Whatever comes of it: no panic.
                let _ = parsed(opcode, &bytes);
            }
        }
        let takes_nothing = [opcode::GETATTR, opcode::READLINK, opcode::STATFS, opcode::STATX];
        if !takes_nothing.contains(&opcode) {
            assert!(parsed(opcode, &[]).is_err(), "{opcode}");
        }
    }
    let value = body(&[&100u32.to_ne_bytes(), &0u32.to_ne_bytes(), b"user.a\0short"]);
    assert!(matches!(parsed(opcode::SETXATTR, &value), Err(Errno::INVAL)));
    let before_the_start = body(&[&[0; 8], &(-1i64).to_ne_bytes(), &SEEK_DATA.to_ne_bytes()]);
    assert!(matches!(parsed(opcode::LSEEK, &before_the_start), Err(Errno::NXIO)));
}

#[test]
fn a_write_says_where_its_payload_goes() {
    let bytes = body(&[
        &[0; 8],
        &4096u64.to_ne_bytes(),
        &512u32.to_ne_bytes(),
        &WRITE_KILL_SUIDGID.to_ne_bytes(),
        &[0; 16],
    ]);
    let head = WriteHead::parse(&bytes).expect("it is whole");
    assert_eq!((head.offset, head.size, head.how.clear_setid), (4096, 512, true));
    assert!(WriteHead::parse(&bytes[..20]).is_none());
}

fn write_how(flags: u32, opened: u32) -> WriteHow {
    let bytes = body(&[
        &[0; 16],
        &512u32.to_ne_bytes(),
        &flags.to_ne_bytes(),
        &[0; 8],
        &opened.to_ne_bytes(),
        &[0; 4],
    ]);
    WriteHead::parse(&bytes).expect("it is whole").how
}

#[test]
fn a_synchronous_write_is_one_unless_the_cache_is_written_out() {
    for owner in [0, WRITE_LOCKOWNER] {
        let durable = |opened| write_how(owner, opened).durable;
        assert_eq!(durable(1), None);
        assert_eq!(durable(OFlags::DIRECT.bits() | O_DSYNC), Some(Durable::Data));
        assert_eq!(durable(O_SYNC | 2), Some(Durable::File));
    }
    assert_eq!(write_how(WRITE_CACHE, O_SYNC).durable, None);
}

#[test]
fn only_a_process_reads_and_writes_past_the_cache() {
    let read = |flags: u32| {
        let direct = OFlags::DIRECT.bits();
        let bytes = body(&[
            &[0; 16],
            &4096u32.to_ne_bytes(),
            &flags.to_ne_bytes(),
            &[0; 8],
            &direct.to_ne_bytes(),
            &[0; 4],
        ]);
        parsed(opcode::READ, &bytes).map(|work| work.ends_a_users_call())
    };
    // A page of a file that is open with O_DIRECT and mapped: locked until the reply.
    assert!(matches!(read(0), Ok(false)));
    assert!(matches!(read(READ_LOCKOWNER), Ok(true)));
    let how = write_how(WRITE_LOCKOWNER, OFlags::DIRECT.bits());
    assert!(how.direct && !how.clear_capabilities, "the kernel has cleared them");
    let how = write_how(WRITE_LOCKOWNER, 2);
    assert!(how.direct && how.clear_capabilities);
    assert!(!write_how(WRITE_CACHE, OFlags::DIRECT.bits()).direct);
}
