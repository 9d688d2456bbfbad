//! Actions of operators on a member of the plane: `POST /fronts/{front}/…`, by the patterns of that member.

use clutch_host::ActError;
use clutch_host::routes::listed;

use super::actions::blocking;
use super::asked::{Answer, Asked};
use super::pages::document;
use crate::body::problem::Problem;
use crate::names::{quoted, suggestion};

pub(super) async fn act(asked: Asked) -> Answer {
    let front = asked.names.get("front").unwrap_or_default();
    let members: Vec<_> = asked.plane.members().into_iter().filter(|member| member.front().is_some()).collect();
    let Some(member) = members.iter().find(|member| member.front() == Some(front)).cloned() else {
        let names = members.iter().filter_map(|member| member.front());
        let detail = format!("nothing can be done by a front '{}'{}", quoted(front), suggestion(front, names));
        return Err(Problem::not_found("no-such-front", detail));
    };
    let (path, body, actions) = (asked.names.rest().to_vec(), asked.body, member.actions());
    let done = blocking(move |_| member.act(&path, &body)).await?;
    done.map(|done| document(&done)).map_err(|error| match error {
        ActError::NoSuchAction => Problem::no_such_path(format!("a front of this kind has POST {}", listed(actions))),
        ActError::NotFound { kind, detail } => Problem::not_found(kind, detail),
        ActError::Invalid(detail) => Problem::bad_request(detail),
        ActError::Refused(detail) => Problem::refused(detail),
    })
}
