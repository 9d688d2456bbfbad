//! Payloads with a function by value: its pickle apart from the arguments, so that all calls of it refer to the same memory.

use std::sync::Arc;

use crate::codec::{Codec, Form};
use crate::payload::Payload;
use crate::region::Lease;

/// The function's number, the length of its pickle, its regions, the codec of the arguments.
const HEAD_BYTES: usize = 8 + 4 + 1 + 1;

/// A function by value: its pickle, and the buffers that go with that.
#[derive(Clone, Debug)]
pub struct Code {
    /// Number of the map that it is for, whose next call takes what it was read as; 0: it is for one call.
    pub number: u64,
    /// The form is [`Codec::Pickle`].
    pub pickle: Payload,
}

impl Code {
    /// Returns the payload of a call with these arguments.
    pub fn with(&self, arguments: Payload) -> Payload {
        let Payload { inline, leases, .. } = &self.pickle;
        let mut out = Vec::with_capacity(HEAD_BYTES + inline.len() + arguments.inline.len());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&(inline.len() as u32).to_le_bytes());
        out.extend_from_slice(&[leases.len() as u8, arguments.form.to_u8()]);
        out.extend_from_slice(inline);
        out.extend_from_slice(&arguments.inline);
        let leases = leases.iter().cloned().chain(arguments.leases).collect();
        Payload { leases, ..Payload::new(Codec::Code, out) }
    }
}

/// Returns the function and the arguments of a payload of [`Codec::Code`], or None if it is cut.
pub fn read_code(payload: &Payload) -> Option<(Code, Payload)> {
    let (head, rest) = payload.inline.split_first_chunk::<HEAD_BYTES>()?;
    let (number, rest_of_head) = head.split_first_chunk::<8>()?;
    let (length, rest_of_head) = rest_of_head.split_first_chunk::<4>()?;
    let [count, form] = *rest_of_head else { return None };
    let (pickle, arguments) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let (of_code, of_arguments) = payload.leases.split_at_checked(usize::from(count))?;
    let part =
        |form, inline: &[u8], leases: &[Arc<Lease>]| Payload { form, inline: inline.to_vec(), leases: leases.to_vec() };
    let code = Code { number: u64::from_le_bytes(*number), pickle: part(Codec::Pickle.into(), pickle, of_code) };
    Some((code, part(Form::from_u8(form)?, arguments, of_arguments)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::RegionPool;

    fn leases(count: usize) -> Vec<Arc<Lease>> {
        let pool = Arc::new(RegionPool::for_one_reader());
        (0..count).map(|_| Arc::new(pool.store_shared(&[7; 100]).expect("shared memory"))).collect()
    }

    #[test]
    fn both_parts_are_read_as_they_were_put() {
        for (of_code, of_arguments) in [(0, 0), (1, 0), (0, 2), (2, 1)] {
            let all = leases(of_code + of_arguments);
            let (first, rest) = all.split_at(of_code);
            let pickle = Payload { leases: first.to_vec(), ..Payload::new(Codec::Pickle, b"code".to_vec()) };
            let arguments = Payload { leases: rest.to_vec(), ..Payload::new(Codec::Plain, b"arguments".to_vec()) };
            let payload = Code { number: 1 << 40, pickle }.with(arguments);
            let (code, arguments) = read_code(&payload).expect("it is whole");
            assert_eq!((code.number, &code.pickle.inline[..]), (1 << 40, &b"code"[..]));
            assert_eq!((arguments.form, &arguments.inline[..]), (Codec::Plain.into(), &b"arguments"[..]));
            assert_eq!((code.pickle.leases.len(), arguments.leases.len()), (of_code, of_arguments));
        }
    }

    #[test]
    fn what_is_cut_is_not_read() {
        let whole = Code { number: 1, pickle: Payload::new(Codec::Pickle, b"code".to_vec()) }.with(Payload::empty());
        for len in 0..whole.inline.len() {
            assert!(read_code(&Payload::new(Codec::Code, whole.inline[..len].to_vec())).is_none());
        }
    }
}
