use super::*;
use crate::mirror::Mirror;
use crate::region::RamRegion;
use crate::testing::put;

const CACHE: usize = 1 << 20;

fn ram(size: usize) -> Database {
    let mirror = Mirror::new(vec![Box::new(RamRegion::new("ram", size))]);
    Database::create(Image::format(mirror).unwrap(), CACHE).unwrap()
}

#[test]
fn what_was_committed_is_read() {
    let mut database = ram(8 << 20);
    assert_eq!(database.get(b"k"), Ok(None));
    database.commit(&[put("k", "v"), put("l", "w")]).unwrap();
    database.commit(&[put("k", "x"), (b"l".to_vec(), None)]).unwrap();
    assert_eq!(database.get(b"k"), Ok(Some(b"x".to_vec())));
    assert_eq!(database.get(b"l"), Ok(None));
    assert_eq!(database.scan(b"", b"z", 5), Ok(vec![(b"k".to_vec(), b"x".to_vec())]));
    database.close().unwrap();
}
