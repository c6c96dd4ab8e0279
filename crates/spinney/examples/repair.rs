//! Plans a repair of an image, and carries it out if a check finds no errors afterwards: `repair IMAGE UNDO_FILE`.

use std::error::Error;
use std::ops::ControlFlow;

use spinney::{Progress, RepairOptions};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(image), Some(undo_file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: repair IMAGE UNDO_FILE".into());
    };
    let mut watch = |progress: &Progress| {
        eprintln!("{} of {} bytes", progress.bytes, progress.bytes_total);
        ControlFlow::Continue(())
    };
    let repair = spinney::plan_repair(image, &RepairOptions::default(), &mut watch)?;
    let plan = repair.plan();
    if plan.is_needless() {
        println!("there is nothing to repair");
    } else if plan.is_complete() && !plan.is_lossy() {
        repair.apply(&undo_file)?;
        println!("{} bytes written; {} has the old ones", plan.bytes(), undo_file.display());
    } else {
        println!("not everything can be repaired without a loss; nothing was written");
    }
    Ok(())
}
