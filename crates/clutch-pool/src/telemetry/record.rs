//! Records of what happened, and the facts that they are about.
//!
//! A fact is a struct beside the code that emits it, declared by [`facts!`](crate::facts). Readers that want one fact look
//! for its type; the others read its name and its fields.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use super::Scope;
use crate::date::Date;

/// Something that can happen. The name is that of logs, streams and tests.
pub trait Fact: Any + Clone + Debug + Send + Sync {
    const NAME: &'static str;
    const SCOPE: Scope;

    /// Returns the fields with their names, in order.
    fn fields(&self) -> Vec<(&'static str, Value)>;
}

/// A fact of any type.
trait AnyFact: Any + Debug + Send + Sync {
    fn name(&self) -> &'static str;
    fn scope(&self) -> Scope;
    fn fields(&self) -> Vec<(&'static str, Value)>;
    fn keep(&self) -> Box<dyn AnyFact>;
    fn as_any(&self) -> &dyn Any;
}

impl<F: Fact> AnyFact for F {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn scope(&self) -> Scope {
        F::SCOPE
    }

    fn fields(&self) -> Vec<(&'static str, Value)> {
        Fact::fields(self)
    }

    fn keep(&self) -> Box<dyn AnyFact> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A fact, the pool in which it happened, and when.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'a> {
    pub at: SystemTime,
    pub pool: &'a Arc<str>,
    fact: &'a dyn AnyFact,
}

impl<'a> EventRecord<'a> {
    /// Stamps a fact with the present time.
    pub(super) fn now<F: Fact>(pool: &'a Arc<str>, fact: &'a F) -> EventRecord<'a> {
        EventRecord { at: SystemTime::now(), pool, fact }
    }

    /// Returns the fact if it is of this type.
    pub fn get<F: Fact>(&self) -> Option<&'a F> {
        self.fact.as_any().downcast_ref()
    }

    /// Returns a copy that outlives the event.
    pub fn keep(&self) -> KeptRecord {
        KeptRecord { at: self.at, pool: self.pool.clone(), fact: self.fact.keep() }
    }
}

/// An [`EventRecord`] that its reader has kept. As JSON: `event`, `time`, `pool` and the fields of the fact.
#[derive(Debug)]
pub struct KeptRecord {
    pub at: SystemTime,
    pub pool: Arc<str>,
    fact: Box<dyn AnyFact>,
}

impl KeptRecord {
    pub fn name(&self) -> &'static str {
        self.fact.name()
    }

    /// Returns the fact if it is of this type.
    pub fn get<F: Fact>(&self) -> Option<&F> {
        self.fact.as_any().downcast_ref()
    }

    pub fn is<F: Fact>(&self) -> bool {
        self.get::<F>().is_some()
    }

    pub(super) fn scope(&self) -> Scope {
        self.fact.scope()
    }

    pub(super) fn as_record(&self) -> EventRecord<'_> {
        EventRecord { at: self.at, pool: &self.pool, fact: &*self.fact }
    }
}

impl Serialize for KeptRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = self.fact.fields();
        let mut map = serializer.serialize_map(Some(fields.len() + 3))?;
        map.serialize_entry("event", self.name())?;
        map.serialize_entry("time", &Date::of(self.at).iso())?;
        map.serialize_entry("pool", &self.pool)?;
        for (name, value) in fields {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

/// A row of the page of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: &'static str,
    pub scope: Scope,
    pub fields: &'static [&'static str],
    pub about: &'static str,
}

/// Declares facts: for each its doc, its name, its scope, and a struct with its fields. `FACTS` describes all of them.
#[macro_export]
macro_rules! facts {
    ($(
        $(#[doc = $about:literal])+
        $name:literal $scope:ident $fact:ident { $($field:ident: $kind:ty),* $(,)? }
    )*) => {
        $(
            $(#[doc = $about])+
            #[derive(Clone, Debug, PartialEq)]
            pub struct $fact { $(pub $field: $kind),* }

            impl $crate::telemetry::Fact for $fact {
                const NAME: &'static str = $name;
                const SCOPE: $crate::telemetry::Scope = $crate::telemetry::Scope::$scope;

                fn fields(&self) -> Vec<(&'static str, ::serde_json::Value)> {
                    vec![$((stringify!($field), ::serde_json::json!(self.$field))),*]
                }
            }
        )*

        /// Everything that is told from here.
        pub const FACTS: &[$crate::telemetry::Description] = &[$($crate::telemetry::Description {
            name: $name,
            scope: $crate::telemetry::Scope::$scope,
            fields: &[$(stringify!($field)),*],
            about: concat!($($about),+),
        }),*];
    };
}
