//! fio as a contender: a process per slice, its own count of bytes and time from its JSON.

use braid_load::{Contender, LoadError, RawLoad, Slice, Until};
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where fio starts in each file: the superblocks of the array's members stand before.
const START: u64 = 32 << 20;

/// fio on the members of an array, or on an export.
pub struct Fio {
    /// The program that runs it, and its arguments up to fio's.
    runner: Vec<String>,
    /// Its arguments that say on what, and by which engine.
    place: Vec<String>,
    load: RawLoad,
}

impl Fio {
    /// With io_uring on `paths`, each of `size` bytes, with the requests of `load`.
    pub fn new(paths: &[PathBuf], size: u64, load: RawLoad) -> Fio {
        let names: Vec<String> =
            paths.iter().map(|path| path.display().to_string().replace(':', "\\:")).collect();
        let place = vec![
            format!("--filename={}", names.join(":")),
            "--ioengine=io_uring".to_owned(),
            "--direct=1".to_owned(),
            format!("--offset={START}"),
            // Of each file.
            format!("--filesize={size}"),
        ];
        Fio { runner: Vec::new(), place, load }
    }

    /// On an NBD export, whose first `size` bytes it uses, with the requests of `load`. With TLS the authority's certificate is
    /// in `.pki/libnbd` of `home`: libnbd looks there for any user but root, so that it runs as nobody.
    pub fn over_nbd(uri: &str, home: Option<&Path>, size: u64, load: RawLoad) -> Fio {
        let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"];
        let runner = home.map_or_else(Vec::new, |home| {
            let home = format!("HOME={}", home.display());
            nobody.iter().map(|word| (*word).to_owned()).chain([home]).collect()
        });
        let place =
            vec!["--ioengine=nbd".to_owned(), format!("--uri={uri}"), format!("--size={size}")];
        Fio { runner, place, load }
    }

    fn arguments(&self, until: Until) -> Vec<String> {
        let mut arguments = arguments(&self.load, until);
        arguments.extend(self.place.iter().cloned());
        arguments
    }

    /// Runs it, and gives what it says.
    fn run(&self, until: Until) -> Result<String, LoadError> {
        let mut words = self.runner.iter().map(String::as_str).chain(["fio"]);
        let mut command = Command::new(words.next().unwrap_or("fio"));
        command.args(words).args(self.arguments(until));
        let output = command
            .output()
            .map_err(|error| failed(format!("{error}; install fio, or leave this table out")))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(format!("it ended with {}: {}{text}", output.status, said.trim())));
        }
        Ok(text.into_owned())
    }

    /// Runs for one slice and gives the seconds of its job's processor time for each request.
    ///
    /// # Errors
    /// When it cannot be run, or says nothing of that.
    pub fn processor_seconds(&self, until: Until) -> Result<f64, LoadError> {
        processor_seconds(&self.run(until)?).map_err(failed)
    }
}

/// fio's arguments for a load, but for those that say on what, and by which engine.
pub fn arguments(load: &RawLoad, until: Until) -> Vec<String> {
    let RawLoad { block, depth, reads, random, .. } = load;
    let rw = match (random, reads) {
        (true, 100) => "randread",
        (true, 0) => "randwrite",
        (true, _) => "randrw",
        (false, 100) => "read",
        (false, 0) => "write",
        (false, _) => "rw",
    };
    let mut arguments = vec![
        "--name=members".to_owned(),
        format!("--rw={rw}"),
        format!("--rwmixread={reads}"),
        format!("--bs={block}"),
        format!("--iodepth={depth}"),
        "--norandommap".to_owned(),
        "--randrepeat=0".to_owned(),
        "--thread".to_owned(),
        "--output-format=json".to_owned(),
    ];
    match until {
        Until::Nanos(nanos) => {
            arguments.push("--time_based".to_owned());
            arguments.push(format!("--runtime={}ms", (nanos / 1_000_000).max(1)));
        }
        Until::Requests(requests) => arguments.push(format!("--number_ios={requests}")),
    }
    arguments
}

fn failed(why: String) -> LoadError {
    LoadError::Program { program: "fio".to_owned(), why }
}

impl Contender for Fio {
    fn name(&self) -> &str {
        "fio"
    }

    fn worth(&self) -> Option<f64> {
        self.load.factor
    }

    fn slice(&mut self, until: Until) -> Result<Slice, LoadError> {
        parse(&self.run(until)?).map_err(failed)
    }
}

#[derive(Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    read: Side,
    write: Side,
    /// Milliseconds.
    #[serde(default)]
    job_runtime: u64,
    /// Percent of that.
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
}

#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    total_ios: u64,
    /// Milliseconds.
    runtime: u64,
}

fn jobs(text: &str) -> Result<Vec<Job>, String> {
    // fio writes its warnings before the JSON.
    let start = text.find('{').ok_or_else(|| format!("no JSON in its output: {text}"))?;
    let output: Output = serde_json::from_str(text.get(start..).unwrap_or_default())
        .map_err(|error| format!("its JSON was not understood: {error}"))?;
    Ok(output.jobs)
}

/// Seconds of processor time for each request, by its JSON.
fn processor_seconds(text: &str) -> Result<f64, String> {
    let (mut seconds, mut requests) = (0.0, 0);
    for Job { read, write, job_runtime, usr_cpu, sys_cpu } in jobs(text)? {
        seconds += job_runtime as f64 / 1e3 * (usr_cpu + sys_cpu) / 100.0;
        requests += read.total_ios + write.total_ios;
    }
    if requests == 0 || seconds == 0.0 {
        return Err("it reports no processor time".to_owned());
    }
    Ok(seconds / requests as f64)
}

/// The figures of a run of fio, from its JSON.
pub fn parse(text: &str) -> Result<Slice, String> {
    let mut slice = Slice::default();
    for Side { io_bytes, total_ios, runtime } in
        jobs(text)?.iter().flat_map(|job| [&job.read, &job.write])
    {
        slice.bytes += io_bytes;
        slice.requests += total_ios;
        slice.seconds = slice.seconds.max(*runtime as f64 / 1e3);
    }
    if slice.bytes == 0 || slice.seconds == 0.0 {
        return Err("it reports that nothing was done".to_owned());
    }
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_both_directions_are_added_and_the_longer_time_counts() {
        let text = r#"fio: a warning
            {"jobs": [{"read": {"io_bytes": 4096, "total_ios": 1, "runtime": 500, "bw": 8},
                       "write": {"io_bytes": 8192, "total_ios": 2, "runtime": 400}}]}"#;
        let slice = parse(text).unwrap();
        assert_eq!((slice.bytes, slice.requests, slice.seconds), (12288, 3, 0.5));
        assert!(parse("fio: bad option").unwrap_err().contains("bad option"));
        let nothing = r#"{"jobs": [{"read": {"io_bytes": 0, "total_ios": 0, "runtime": 0},
                                    "write": {"io_bytes": 0, "total_ios": 0, "runtime": 0}}]}"#;
        assert!(parse(nothing).unwrap_err().contains("nothing"));
    }

    #[test]
    fn processor_time_is_that_of_the_job_for_each_request() {
        let text = r#"{"jobs": [{"read": {"io_bytes": 4096, "total_ios": 300, "runtime": 500},
                                 "write": {"io_bytes": 8192, "total_ios": 200, "runtime": 400},
                                 "job_runtime": 500, "usr_cpu": 20.0, "sys_cpu": 60.0}]}"#;
        assert!((processor_seconds(text).unwrap() - 0.4 / 500.0).abs() < 1e-9);
        let silent = text.replace("60.0", "0.0").replace("20.0", "0.0");
        assert!(processor_seconds(&silent).unwrap_err().contains("no processor time"));
    }

    #[test]
    fn the_mix_and_depth_are_those_of_the_members_load() {
        let load = RawLoad {
            block: 4096,
            depth: 32,
            reads: 50,
            random: true,
            members: 5,
            factor: Some(0.25),
        };
        let fio = Fio::new(&["/tmp/a:b".into(), "/tmp/c".into()], 1 << 30, load);
        let arguments = fio.arguments(Until::Nanos(500_000_000)).join(" ");
        for part in [
            "--filename=/tmp/a\\:b:/tmp/c",
            "--rw=randrw",
            "--rwmixread=50",
            "--bs=4096",
            "--iodepth=32",
            "--runtime=500ms",
        ] {
            assert!(arguments.contains(part), "{arguments}");
        }
        assert_eq!(fio.worth(), Some(0.25));
    }
}
