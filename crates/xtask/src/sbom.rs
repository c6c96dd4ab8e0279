//! Lists all that the program is made of, as CycloneDX 1.5 in JSON: `cargo xtask sbom`.
//!
//! The list is what cargo resolves for the target: the normal dependencies of `spinney-cli` and theirs, each with its
//! version, licence and the checksum in `Cargo.lock`. Tools that only run while building (build scripts, macros) have
//! the scope `excluded`. Nothing random is in it, so that equal sources give equal lists. Called by `main` and
//! `release`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::system::{run, run_command, source_date};

/// Options of the list.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Target whose dependencies are listed
    #[arg(long, default_value = "x86_64-unknown-linux-musl")]
    target: String,
    /// Where the list goes
    #[arg(long, default_value = "target/spinney.cdx.json")]
    file: PathBuf,
}

/// Package of the program.
const PROGRAM: &str = "spinney-cli";

/// A package: what it needs in the program, and what only while it is built.
#[derive(Default)]
struct Needs {
    linked: BTreeSet<String>,
    building: BTreeSet<String>,
}

/// Writes the list.
///
/// # Errors
/// A failing cargo, a package without a licence.
pub(crate) fn execute(root: &Path, options: &Options) -> Result<()> {
    let count = write(root, &options.target, &options.file, &source_date(root)?)?;
    println!("sbom: {}: {count} components", options.file.display());
    Ok(())
}

/// Writes the list of a target; the result is the number of components.
pub(crate) fn write(root: &Path, target: &str, file: &Path, date: &str) -> Result<usize> {
    let words = ["metadata", "--locked", "--format-version", "1", "--filter-platform", target];
    let said = run_command(Command::new("cargo").current_dir(root).args(words))?;
    let metadata: Value = serde_json::from_str(&said)?;
    let packages: BTreeMap<&str, &Value> =
        list(&metadata["packages"]).filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let program = packages.iter().find(|(_, package)| package["name"] == PROGRAM).context("the program's package")?;
    let needs = read_needs(&metadata);
    let linked = reach(&needs, program.0, |needs| needs.linked.iter().collect());
    let all = reach(&needs, program.0, |needs| needs.linked.iter().chain(&needs.building).collect());
    let checksums = read_checksums(root)?;
    let mut components = Vec::new();
    for id in all.iter().filter(|id| id.as_str() != *program.0) {
        let package = packages.get(id.as_str()).context("a package of the graph")?;
        components.push(component(package, linked.contains(id), &checksums)?);
    }
    let by_name = |component: &Value| component["bom-ref"].as_str().map(str::to_owned);
    components.sort_by_key(by_name);
    let mut graph = Vec::new();
    for id in &all {
        let own = reference(packages.get(id.as_str()).context("a package of the graph")?);
        let needs = needs.get(id).context("a package of the graph")?;
        let below = needs.linked.iter().chain(&needs.building).collect::<BTreeSet<_>>();
        let mut below: Vec<String> =
            below.iter().filter_map(|id| packages.get(id.as_str()).map(|it| reference(it))).collect();
        below.sort();
        graph.push(json!({ "ref": own, "dependsOn": below }));
    }
    graph.sort_by_key(|entry| entry["ref"].as_str().map(str::to_owned));
    let when = run("date", &["--utc", "--date", &format!("@{date}"), "+%Y-%m-%dT%H:%M:%SZ"])?;
    let mut own = component(program.1, true, &checksums)?;
    own["type"] = json!("application");
    let count = components.len();
    let text = serde_json::to_string_pretty(&json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": when.trim(),
            "component": own,
            "properties": [{ "name": "target", "value": target }],
        },
        "components": components,
        "dependencies": graph,
    }))?;
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(file, text + "\n")?;
    Ok(count)
}

/// The graph that cargo has resolved; dependencies of tests are left out.
fn read_needs(metadata: &Value) -> BTreeMap<String, Needs> {
    let mut all = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        let mut needs = Needs::default();
        for dependency in list(&node["deps"]) {
            let id = text_of(&dependency["pkg"]);
            let kinds: Vec<&Value> = list(&dependency["dep_kinds"]).map(|kind| &kind["kind"]).collect();
            if kinds.iter().any(|kind| kind.is_null()) {
                needs.linked.insert(id.clone());
            }
            if kinds.iter().any(|kind| *kind == "build") {
                needs.building.insert(id);
            }
        }
        all.insert(text_of(&node["id"]), needs);
    }
    all
}

/// All packages that can be reached from one by the given steps.
fn reach<'a>(
    needs: &'a BTreeMap<String, Needs>,
    from: &str,
    steps: impl Fn(&'a Needs) -> Vec<&'a String>,
) -> BTreeSet<String> {
    let mut seen = BTreeSet::from([from.to_owned()]);
    let mut todo = vec![from.to_owned()];
    while let Some(id) = todo.pop() {
        for next in needs.get(&id).map(&steps).unwrap_or_default() {
            if seen.insert(next.clone()) {
                todo.push(next.clone());
            }
        }
    }
    seen
}

fn component(package: &Value, is_linked: bool, checksums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let (name, version) = (text_of(&package["name"]), text_of(&package["version"]));
    // Older manifests separate alternatives by a slash.
    let licence = text_of(&package["license"]).replace(" / ", "/").replace('/', " OR ");
    ensure!(!licence.is_empty(), "{name} {version} names no licence");
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": name,
        "version": version,
        "scope": if is_linked { "required" } else { "excluded" },
        "licenses": [{ "expression": licence }],
        "purl": reference(package),
    });
    if let Some(sum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if let Some(address) = package["repository"].as_str() {
        component["externalReferences"] = json!([{ "type": "vcs", "url": address }]);
    }
    Ok(component)
}

/// The address of a package in the form of package URLs.
fn reference(package: &Value) -> String {
    format!("pkg:cargo/{}@{}", text_of(&package["name"]), text_of(&package["version"]))
}

/// The checksums in `Cargo.lock`, by name and version.
fn read_checksums(root: &Path) -> Result<BTreeMap<(String, String), String>> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("Cargo.lock")?;
    let field = |part: &str, name: &str| {
        let start = format!("{name} = \"");
        part.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim_end_matches('"').to_owned()))
    };
    let parts = lock.split("[[package]]");
    Ok(parts
        .filter_map(|part| Some(((field(part, "name")?, field(part, "version")?), field(part, "checksum")?)))
        .collect())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
