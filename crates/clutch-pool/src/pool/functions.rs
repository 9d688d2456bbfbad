//! The functions that callers have named, and the numbers by which workers know them.

use std::collections::HashMap;
use std::sync::Arc;

use clutch_wire::Codec;

use super::entry::Entry;
use crate::work::{FunctionId, Work, WorkKind};

/// A function that workers know by number.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) codec: Codec,
    pub(super) body: Vec<u8>,
    /// For people.
    pub(super) name: String,
    /// The name, of a tool that is called by it.
    tool: Option<Arc<str>>,
}

/// See the file's head.
#[derive(Debug, Default)]
pub(super) struct Functions {
    functions: Vec<Function>,
    numbers: HashMap<Vec<u8>, FunctionId>,
    /// Workers run another Python version: code by value cannot go there.
    foreign: Option<String>,
}

impl Functions {
    /// The number of a function; the same bytes always get the same number.
    pub(super) fn number(&mut self, codec: Codec, body: &[u8], name: &str) -> FunctionId {
        let mut key = vec![codec as u8];
        key.extend_from_slice(body);
        if let Some(id) = self.numbers.get(&key) {
            return *id;
        }
        let id = self.functions.len() as FunctionId;
        let tool = (codec == Codec::Name).then(|| name.into());
        self.functions.push(Function { codec, body: body.to_vec(), name: name.to_owned(), tool });
        self.numbers.insert(key, id);
        id
    }

    pub(super) fn get(&self, id: FunctionId) -> Option<&Function> {
        self.functions.get(id as usize)
    }

    /// `version`: of the Python that workers run, where it is another one than the callers'.
    pub(super) fn set_foreign(&mut self, version: Option<String>) {
        self.foreign = version;
    }

    /// The version of Python that this work's code cannot go to.
    pub(super) fn foreign_to(&self, entry: &Entry) -> Option<&str> {
        self.foreign.as_deref().filter(|_| entry.work.by_value)
    }

    /// The tool that a call by name is for.
    pub(super) fn tool(&self, work: &Work) -> Option<Arc<str>> {
        let function = self.get(work.function).filter(|_| work.kind == WorkKind::CALL)?;
        function.tool.clone()
    }

    /// Describes a piece of work for people.
    pub(super) fn describe(&self, entry: &Entry) -> String {
        let work = &entry.work;
        let named = || {
            let function = self.get(work.function)?;
            Some(&function.name).filter(|name| !name.is_empty() && function.codec != Codec::Empty).cloned()
        };
        let described = work.reply.describe(&work.payload).or_else(named);
        described.unwrap_or_else(|| work.kind.name().to_owned())
    }
}
