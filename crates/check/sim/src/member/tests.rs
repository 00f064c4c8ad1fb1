//! One member, without a world.

use super::*;

fn member(volatile: bool) -> Member {
    let mut info = DeviceInfo::plain("m", 1 << 16);
    info.volatile_cache = volatile;
    Member::new(MemberKind { index: 0, array: 0, info, tear: 512, lies: false, garbage: None })
}

fn first(member: &Member) -> u8 {
    let mut bytes = [0; 512];
    member.read(0, &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn a_flush_covers_what_had_completed_when_it_was_submitted() {
    for seed in 0..50 {
        let (member, rng) = (member(true), Rng::new(seed, 0));
        member.write(&rng, 0, &[1; 512], false).unwrap();
        let seq = member.writes_so_far();
        member.write(&rng, 0, &[2; 512], false).unwrap();
        member.flush(seq).unwrap();
        member.power_cut(&rng, Vec::new());
        assert!([1, 2].contains(&first(&member)));
    }
}

#[test]
fn an_unflushed_write_is_kept_or_lost_and_both_happen() {
    let survives = |seed| {
        let (member, rng) = (member(true), Rng::new(seed, 0));
        member.write(&rng, 0, &[1; 512], false).unwrap();
        member.power_cut(&rng, Vec::new());
        first(&member) == 1
    };
    let kept = (0..100).filter(|seed| survives(*seed)).count();
    assert!((10..90).contains(&kept), "{kept}");
}

#[test]
fn without_a_cache_a_completed_write_survives() {
    let (member, rng) = (member(false), Rng::new(1, 0));
    member.write(&rng, 0, &[1; 512], false).unwrap();
    member.power_cut(&rng, Vec::new());
    assert_eq!(first(&member), 1);
}

#[test]
fn an_unreadable_block_is_mended_by_writing_it() {
    let (member, rng) = (member(false), Rng::new(1, 0));
    *member.data.borrow_mut() = 0..1 << 16;
    member.make_unreadable(512, 1);
    assert!(member.read(0, &mut [0; 1024]).is_err());
    member.write(&rng, 512, &[1; 512], false).unwrap();
    assert!(member.read(0, &mut [0; 1024]).is_ok());
}

#[test]
fn a_write_with_fua_stays_when_the_loss_of_others_shows() {
    let (member, rng) = (member(true), Rng::new(1, 0));
    member.drops_pages.set(true);
    member.write(&rng, 0, &[1; 512], false).unwrap();
    member.fail_flush();
    assert!(member.flush(member.writes_so_far()).is_err());
    member.write(&rng, 0, &[2; 512], false).unwrap();
    member.write(&rng, 0, &[3; 512], true).unwrap();
    member.show_loss();
    assert_eq!(first(&member), 3);
    member.write(&rng, 0, &[4; 512], false).unwrap();
    member.show_loss();
    assert_eq!(first(&member), 4);
}
