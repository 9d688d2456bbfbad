//! Why work failed, and the body of the frame that says so.

use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::frame::{Kind, WireError, u32_at};

/// The place of work whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    Queue,
    Running,
}

impl Where {
    pub fn as_str(self) -> &'static str {
        match self {
            Where::Queue => "queue",
            Where::Running => "running",
        }
    }
}

/// Work whose deadline has passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    pub at: Where,
    /// The function's name, or the request.
    pub what: String,
    /// Time since it was submitted.
    pub after: Duration,
    /// The worker that ran it: `pool/0`.
    pub worker: Option<String>,
    /// The Python stacks of the worker, or empty.
    pub stacks: String,
}

impl fmt::Display for Expired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expired { at, what, after, worker, .. } = self;
        write!(formatter, "the deadline passed after {:.3} s, while {what} ", after.as_secs_f64())?;
        match (at, worker) {
            (Where::Queue, _) => formatter.write_str("waited for a worker"),
            (Where::Running, Some(worker)) => write!(formatter, "ran in worker {worker}"),
            (Where::Running, None) => formatter.write_str("ran"),
        }
    }
}

/// Why something failed. The names are those of the wire and of `RemoteError.kind`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The user's code raised. `problem`: the document that it meant for callers over HTTP, or empty.
    #[error("{type_name}: {message}")]
    Raised { type_name: String, message: String, traceback: String, pickled: Vec<u8>, problem: Vec<u8> },
    /// The result (or the exception) could not be encoded.
    #[error("the result cannot be encoded: {message}")]
    Encode { type_name: String, message: String, traceback: String },
    /// The arguments could not be decoded or do not fit. `detail` is a JSON array of problems, or empty.
    #[error("bad arguments: {message}")]
    BadArguments { message: String, detail: String },
    #[error("no such tool: {message}")]
    NoSuchTool { message: String },
    /// The worker died while it ran the work. `cause`: why Clutch ended it itself.
    #[error("{message}")]
    WorkerLost {
        message: String,
        /// 0: no worker ran it, because none can start for now.
        worker_pid: i32,
        signal: Option<i32>,
        exit_code: Option<i32>,
        output: String,
        cause: Option<String>,
    },
    /// The work killed too many workers.
    #[error("{message}")]
    Poisoned { message: String, deaths: u32 },
    /// The pool cannot start its workers, for a reason that the user can fix.
    #[error("{message}")]
    Config { message: String },
    /// An item of a mapped batch has exceeded its deadline.
    #[error("{0}")]
    Expired(Box<Expired>),
}

impl Failure {
    /// The name of the variant, for events and records.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Raised { .. } => "raised",
            Failure::Encode { .. } => "encode",
            Failure::BadArguments { .. } => "bad_arguments",
            Failure::NoSuchTool { .. } => "no_such_tool",
            Failure::WorkerLost { .. } => "worker_lost",
            Failure::Poisoned { .. } => "poisoned",
            Failure::Config { .. } => "config",
            Failure::Expired(_) => "deadline",
        }
    }

    /// Whether the work had no part in it: its pool ended the worker, or can start none.
    pub fn is_of_pool(&self) -> bool {
        matches!(
            self,
            Failure::WorkerLost { cause: Some(_), .. }
                | Failure::WorkerLost { worker_pid: 0, .. }
                | Failure::Config { .. }
        )
    }

    /// The body of a failure frame: a tag, then its fields, each prefixed by its length.
    pub fn encode(&self) -> Vec<u8> {
        let number = |number: Option<i32>| number.map_or(Vec::new(), |number| number.to_le_bytes().to_vec());
        let [pid, signal, exit_code] = match self {
            Failure::WorkerLost { worker_pid, signal, exit_code, .. } => [Some(*worker_pid), *signal, *exit_code],
            _ => [None; 3],
        }
        .map(number);
        let after = match self {
            Failure::Expired(expired) => u64::try_from(expired.after.as_nanos()).unwrap_or(u64::MAX).to_le_bytes(),
            _ => [0; 8],
        };
        let (tag, fields): (u8, Vec<&[u8]>) = match self {
            Failure::Raised { type_name, message, traceback, pickled, problem } => {
                let mut fields: Vec<&[u8]> =
                    vec![type_name.as_bytes(), message.as_bytes(), traceback.as_bytes(), pickled];
                fields.extend((!problem.is_empty()).then_some(&problem[..]));
                (1, fields)
            }
            Failure::Encode { type_name, message, traceback } => {
                (2, vec![type_name.as_bytes(), message.as_bytes(), traceback.as_bytes()])
            }
            Failure::BadArguments { message, detail } => (3, vec![message.as_bytes(), detail.as_bytes()]),
            Failure::NoSuchTool { message } => (4, vec![message.as_bytes()]),
            Failure::Poisoned { message, .. } => (5, vec![message.as_bytes()]),
            Failure::Config { message } => (6, vec![message.as_bytes()]),
            Failure::WorkerLost { message, output, cause, .. } => {
                let mut fields = vec![message.as_bytes(), pid.as_slice(), &signal, &exit_code, output.as_bytes()];
                fields.extend(cause.as_ref().map(String::as_bytes));
                (7, fields)
            }
            Failure::Expired(expired) => {
                let worker = expired.worker.as_deref().unwrap_or_default();
                (8, vec![expired.what.as_bytes(), &after, worker.as_bytes(), expired.stacks.as_bytes()])
            }
        };
        let mut out = vec![tag];
        for field in fields {
            out.extend_from_slice(&(field.len() as u32).to_le_bytes());
            out.extend_from_slice(field);
        }
        out
    }

    /// Reads what [`Failure::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Result<Failure, WireError> {
        let (tag, rest) = bytes.split_first().ok_or(WireError::Short { kind: Kind::Failure, missing: 1 })?;
        let mut fields = Fields(rest);
        Ok(match tag {
            1 => Failure::Raised {
                type_name: fields.text()?,
                message: fields.text()?,
                traceback: fields.text()?,
                pickled: fields.bytes()?,
                problem: if fields.is_over() { Vec::new() } else { fields.bytes()? },
            },
            2 => Failure::Encode { type_name: fields.text()?, message: fields.text()?, traceback: fields.text()? },
            3 => Failure::BadArguments { message: fields.text()?, detail: fields.text()? },
            4 => Failure::NoSuchTool { message: fields.text()? },
            5 => Failure::Poisoned { message: fields.text()?, deaths: 0 },
            6 => Failure::Config { message: fields.text()? },
            7 => Failure::WorkerLost {
                message: fields.text()?,
                worker_pid: fields.number()?.unwrap_or_default(),
                signal: fields.number()?,
                exit_code: fields.number()?,
                output: fields.text()?,
                cause: if fields.is_over() { None } else { Some(fields.text()?) },
            },
            8 => Failure::Expired(Box::new(Expired {
                at: Where::Running,
                what: fields.text()?,
                after: Duration::from_nanos(fields.bytes()?.try_into().map_or(0, u64::from_le_bytes)),
                worker: Some(fields.text()?).filter(|worker| !worker.is_empty()),
                stacks: fields.text()?,
            })),
            other => return Err(WireError::Kind(*other)),
        })
    }
}

/// The fields of a failure's body.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&mut self) -> Result<Vec<u8>, WireError> {
        let short = |missing| WireError::Short { kind: Kind::Failure, missing };
        if self.0.len() < 4 {
            return Err(short(4 - self.0.len()));
        }
        let (head, rest) = self.0.split_at(4);
        let (body, rest) = rest.split_at_checked(u32_at(head, 0) as usize).ok_or(short(u32_at(head, 0) as usize))?;
        self.0 = rest;
        Ok(body.to_vec())
    }

    fn text(&mut self) -> Result<String, WireError> {
        Ok(String::from_utf8_lossy(&self.bytes()?).into_owned())
    }

    fn number(&mut self) -> Result<Option<i32>, WireError> {
        Ok(self.bytes()?.try_into().ok().map(i32::from_le_bytes))
    }
}
