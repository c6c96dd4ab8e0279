//! Small hostile images: the bases are right, and an image follows from its numbers alone.

use std::sync::Arc;

use blockdev::Device;
use btrfs_check::{Options, Pass, check};
use testkit::hostile::{hostile_image, small_bases};

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(device.size_bytes()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_small_bases_are_whole() {
    let passes = vec![Pass::Super, Pass::Quota, Pass::Roots, Pass::Log, Pass::Space, Pass::Data];
    let options = Options { passes, ..Options::default() };
    for small in small_bases().unwrap() {
        let (device, _) = small.base().copy();
        let report = check(&[device], &options, &()).unwrap();
        assert!(report.counts.is_empty(), "{}: {:?}", small.base().name, report.findings);
        assert!(report.inodes > 20, "{}: {} inodes", small.base().name, report.inodes);
    }
}

#[test]
fn an_image_is_made_again_from_its_numbers() {
    let bases = small_bases().unwrap();
    let whole: Vec<Vec<u8>> = bases.iter().map(|small| bytes(&*small.base().copy().0)).collect();
    let mut different = 0;
    for number in 0..100u64 {
        let numbers = [number, number + 1000];
        let (one, other) = (hostile_image(&bases, 5, &numbers).unwrap(), hostile_image(&bases, 5, &numbers).unwrap());
        assert_eq!((one.base, &one.changes), (other.base, &other.changes), "{number}");
        assert!(bytes(&*one.device) == bytes(&*other.device), "{number}: {:?}", one.changes);
        different += usize::from(!whole.contains(&bytes(&*one.device)));
    }
    assert!(different > 90, "{different} of 100 differ from their bases");
    let after: Vec<Vec<u8>> = bases.iter().map(|small| bytes(&*small.base().copy().0)).collect();
    assert!(whole == after, "a base was changed");
}

#[test]
#[should_panic(expected = "a device that is only to be read was written")]
fn a_write_to_a_hostile_image_is_told() {
    let image = hostile_image(&small_bases().unwrap(), 1, &[1]).unwrap();
    let device: Arc<dyn Device> = image.device;
    let _ = device.write_at(0, &[b"x"]);
}
