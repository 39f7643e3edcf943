//! `remit-launcher`: reads a plan, applies it step by step, executes, reports. It decides nothing.
//!
//! ```text
//! remit-launcher run --plan FILE|FD [--control FD] [--timings]
//! remit-launcher probe
//! remit-launcher relay --control FD
//! ```

#![deny(unsafe_code)]

mod cgroup;
mod confine;
mod connections;
mod control;
mod ending;
mod failure;
mod idmap;
mod init;
mod launch;
mod marks;
mod mechanisms;
mod messages;
mod monitor;
mod network;
mod notify;
mod paths;
mod plan;
mod probe;
mod relay;
mod repeats;
mod report;
mod root;
mod sources;
#[allow(unsafe_code)]
mod sys;
mod teardown;
mod terminal;
mod watchdog;

use std::io::Read;
use std::os::fd::OwnedFd;
use std::time::Instant;

use failure::{Failure, Outcome};
use plan::Plan;
use report::{Report, Reporter};

const USAGE: &str =
    "usage: remit-launcher run --plan FILE|FD [--control FD] [--timings]\n       remit-launcher probe\n       \
                     remit-launcher relay --control FD\n\
                     A plan is made by `remit run --dry-run`; people use `remit`, not this program.";

fn main() {
    let began = Instant::now();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let code = match arguments.first().map(String::as_str) {
        Some("run") => run(&arguments[1..], began),
        Some("probe") => probe::print(),
        Some("relay") => relay(&arguments[1..]),
        Some("--version") => {
            println!("remit-launcher {} (plan {})", env!("CARGO_PKG_VERSION"), plan::VERSION);
            0
        }
        _ => {
            eprintln!("{USAGE}");
            2
        }
    };
    std::process::exit(code);
}

#[derive(Default)]
struct Options {
    plan: Option<String>,
    control: Option<OwnedFd>,
    timings: bool,
}

fn options(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} wants a value"));
        match argument.as_str() {
            "--plan" => options.plan = Some(value()?.clone()),
            "--control" => {
                let text = value()?;
                let fd = text.parse().ok().and_then(sys::adopt);
                options.control = Some(fd.ok_or(format!("--control {text}: not an open descriptor above 2"))?);
            }
            "--timings" => options.timings = true,
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn run(arguments: &[String], began: Instant) -> i32 {
    let options = match options(arguments) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("remit-launcher: {error}\n{USAGE}");
            return 2;
        }
    };
    let reporter = Reporter::new(options.control);
    match options.plan.as_deref().ok_or(Failure::new("plan", "--plan is missing")).and_then(read_plan) {
        Ok(plan) => monitor::run(&plan, &reporter, began, options.timings),
        Err(failure) => {
            reporter.say(&Report::Failed { failure: &failure });
            reporter.flush(rustix::net::SendFlags::empty());
            125
        }
    }
}

fn relay(arguments: &[String]) -> i32 {
    match options(arguments) {
        Ok(Options { plan: None, control: Some(control), timings: false }) => connections::run(control),
        other => {
            let error = other.err().unwrap_or("relay takes --control, and nothing else".into());
            eprintln!("remit-launcher: {error}\n{USAGE}");
            2
        }
    }
}

fn read_plan(from: &str) -> Outcome<Plan> {
    let failed =
        |error: &dyn std::fmt::Display| Failure { path: from.into(), ..Failure::new("plan", error.to_string()) };
    let mut bytes = Vec::new();
    let read = match from.parse::<i32>() {
        Ok(number) => {
            let fd = sys::adopt(number).ok_or_else(|| failed(&"not an open descriptor above 2"))?;
            std::fs::File::from(fd).read_to_end(&mut bytes)
        }
        Err(_) => std::fs::File::open(from).and_then(|mut file| file.read_to_end(&mut bytes)),
    };
    read.map_err(|error| failed(&error))?;
    Plan::parse(&bytes).map_err(|error| failed(&error))
}
