fn main() {
    for path in std::env::args().skip(1) {
        let options = blockdev::backends::FileOptions { read_only: true, ..Default::default() };
        let device = blockdev::backends::FileDevice::open(std::path::Path::new(&path), &options).unwrap();
        let begin = std::time::Instant::now();
        match f2fs_check::check(&device, &f2fs_check::Options::default(), &()) {
            Err(error) => println!("{path}: ERROR {error}"),
            Ok(report) => {
                println!("{path}: {:?} {} inodes {} MiB {:?}", report.counts, report.inodes, report.bytes >> 20, begin.elapsed());
                for note in &report.notes { println!("   note {note}"); }
                for f in report.findings.iter().take(12) {
                    println!("   {} {} expected {} found {} {:?}", f.code, f.what, f.expected, f.found, f.place);
                }
            }
        }
    }
}
