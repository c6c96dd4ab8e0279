# Short names for what is done often. `just --list` shows them.

# Build and run the main job: a directory becomes an image.
demo *ARGUMENTS:
    ./demo.sh {{ARGUMENTS}}

# Everything that has to pass.
test:
    ./test.sh

# What a change needs before it is shown: seconds, not minutes.
check:
    cargo xtask tidy
    cargo clippy --workspace --all-targets -- -D warnings

# Random operations against the model, this many seeds.
property SEEDS="200":
    SPINNEY_SEEDS={{SEEDS}} cargo test --release --package testkit --test property -- --nocapture

# Images by the kernel, walked by the kernel and by Spinney (root).
walk DIR="/dev/shm/spinney-images":
    cargo trials images --dir {{DIR}}
    cargo trials diff-walk {{DIR}}/*.img

# Speed beside the kernel and mkfs.btrfs (root), with a source tree on a memory file system.
bench SOURCE:
    cargo build --release --package bench --package spinney-cli
    target/release/bench run --source {{SOURCE}} --program target/release/spinney

docs:
    cargo doc --workspace --no-deps --open
