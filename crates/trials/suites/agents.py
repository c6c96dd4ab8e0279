#!/usr/bin/env python3
"""agents.py MOUNT TREE: runs agents concurrently, each on a copy of TREE of its own.

Each agent makes a copy, edits 100 of its files, adds a file, and runs a test in it. Every second agent then merges its
changes into the base; the others discard them. The copies are made in three ways: forks on MOUNT (of Spinney), git
worktrees, and `cp -a`; the last two need a directory given by --host. At the end the script compares all files of the
base: it has to contain the changes of the agents that merged, and no others. SPINNEY names the program.
"""
import argparse, concurrent.futures, hashlib, json, os, shutil, subprocess, sys, threading, time

EDITS = 100


def call(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")
    return done.stdout


def files_of(tree):
    found = []
    for folder, folders, names in os.walk(tree):
        folders[:] = sorted(name for name in folders if name != ".git")
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and name != ".git":
                found.append(os.path.relpath(path, tree))
    return found


def work(copy, files, number):
    """Edits the files of agent `number`, adds one, then greps 50 of them for the new line, as a test run would."""
    own = files[number * EDITS:(number + 1) * EDITS]
    for path in own:
        with open(os.path.join(copy, path), "a") as file:
            file.write(f"\nagent {number}\n")
    with open(os.path.join(copy, f"agent-{number}"), "w") as file:
        file.write(f"{number}\n")
    found = call("grep", "-rl", "--include=*", f"^agent [0-9]*$", *own[:50], cwd=copy).split("\n")
    if len([line for line in found if line]) != len(own[:50]):
        raise RuntimeError(f"agent {number}: its test failed")


class Forks:
    name = "forks"

    def __init__(self, mount, tree):
        self.program = os.environ.get("SPINNEY", "spinney")
        self.mount, self.base = mount, os.path.join(mount, "agents-base")
        call(self.program, "subvolume", "create", self.base)
        call("cp", "-a", os.path.join(tree, "."), self.base)
        call("sync", "-f", self.base)

    def take(self, number):
        copy = os.path.join(self.mount, f"agent-{number}")
        call(self.program, "fork", self.base, copy)
        return copy

    def merge(self, copy):
        # Of two concurrent merges into one base, one can fail and has to be repeated.
        for _ in range(50):
            done = subprocess.run([self.program, "fork", "merge", copy], capture_output=True, text=True)
            if done.returncode == 0:
                return self.drop(copy)
        raise RuntimeError(done.stdout + done.stderr)

    def drop(self, copy):
        call(self.program, "fork", "drop", copy)

    def end(self):
        call(self.program, "subvolume", "delete", self.base)


class Worktrees:
    name = "git worktree"
    lock = threading.Lock()

    def __init__(self, host, tree):
        self.host, self.base = host, os.path.join(host, "git-base")
        call("cp", "-a", tree, self.base)
        for words in (["init", "-q"], ["config", "user.name", "a"], ["config", "user.email", "a@b.c"],
                      ["config", "gc.auto", "0"], ["add", "-A", "-f"], ["commit", "-q", "-m", "base"]):
            call("git", *words, cwd=self.base)

    def take(self, number):
        copy = os.path.join(self.host, f"git-{number}")
        with self.lock:  # concurrent `git worktree add` reads unfinished files of the other
            call("git", "worktree", "add", "--no-checkout", "-q", "-b", f"agent-{number}", copy, cwd=self.base)
        call("git", "reset", "-q", "--hard", cwd=copy)
        return copy

    def merge(self, copy):
        call("git", "add", "-A", "-f", cwd=copy)
        call("git", "commit", "-q", "-m", "work", cwd=copy)
        with self.lock:  # a git repository has one index, so merges cannot run concurrently
            call("git", "merge", "-q", "-m", "merge", "agent-" + copy.rsplit("-", 1)[1], cwd=self.base)
        self.drop(copy)

    def drop(self, copy):
        with self.lock:
            call("git", "worktree", "remove", "--force", copy, cwd=self.base)

    def end(self):
        shutil.rmtree(self.base)


class Copies:
    name = "cp -a"

    def __init__(self, host, tree):
        self.host, self.base = host, os.path.join(host, "cp-base")
        call("cp", "-a", tree, self.base)

    def take(self, number):
        copy = os.path.join(self.host, f"cp-{number}")
        call("cp", "-a", self.base, copy)
        return copy

    def merge(self, copy):
        # Changed files are newer than those of the base.
        call("rsync", "-a", "--update", copy + "/", self.base + "/")
        self.drop(copy)

    def drop(self, copy):
        shutil.rmtree(copy)

    def end(self):
        shutil.rmtree(self.base)


def agent(way, files, number):
    copy = way.take(number)
    work(copy, files, number)
    if number % 2 == 0:
        way.merge(copy)
    else:
        way.drop(copy)


def expected(tree, files, agents):
    wanted = {}
    for place, path in enumerate(files):
        with open(os.path.join(tree, path), "rb") as file:
            data = file.read()
        number = place // EDITS
        if number < agents and number % 2 == 0:
            data += f"\nagent {number}\n".encode()
        wanted[path] = hashlib.sha256(data).digest()
    for number in range(0, agents, 2):
        wanted[f"agent-{number}"] = hashlib.sha256(f"{number}\n".encode()).digest()
    return wanted


def state(tree):
    found = {}
    for path in files_of(tree):
        with open(os.path.join(tree, path), "rb") as file:
            found[path] = hashlib.sha256(file.read()).digest()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mount")
    parser.add_argument("tree")
    parser.add_argument("--host", help="a directory for worktrees and copies; without it only forks are made")
    parser.add_argument("--agents", type=int, default=32)
    options = parser.parse_args()
    files = files_of(options.tree)
    if len(files) < options.agents * EDITS:
        sys.exit(f"{options.tree} has {len(files)} files, expected {options.agents * EDITS} at least")
    wanted = expected(options.tree, files, options.agents)
    failed = 0
    ways = [(Forks, options.mount)]
    if options.host:
        ways += [(Worktrees, options.host), (Copies, options.host)]
    for make, place in ways:
        way = make(place, options.tree)
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(options.agents) as pool:
            list(pool.map(lambda number: agent(way, files, number), range(options.agents)))
        took = time.monotonic() - start
        found = state(way.base)
        wrong = [path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)]
        failed += bool(wrong)
        print(f"{way.name}: {options.agents} agents, {len(files)} files, {took:.1f} s, {len(wrong)} files wrong {wrong[:3]}")
        way.end()
    print(f"agents: {failed} ways failed")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
