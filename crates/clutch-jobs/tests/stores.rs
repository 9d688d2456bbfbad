//! What every store promises, checked on each: a new store is one more entry in [`stores!`].

#![allow(clippy::unwrap_used, reason = "each promise is the body of a test")]

#[path = "stores/enqueueing.rs"]
mod enqueueing;
#[path = "stores/following.rs"]
mod following;
#[path = "stores/house.rs"]
mod house;
#[path = "stores/leases.rs"]
mod leases;
#[path = "stores/limits.rs"]
mod limits;
#[path = "stores/operators.rs"]
mod operators;
#[path = "redis/server.rs"]
mod server;
#[path = "stores/upkeep.rs"]
mod upkeep;

/// Each promise on each store.
macro_rules! stores {
    ($($store:ident),*: $promises:tt) => { $(stores!(@one $store $promises);)* };
    (@one $store:ident { $($room:ident { $($promise:ident),* $(,)? })* }) => {
        mod $store {
            $($(#[test] fn $promise() {
                if let Some(house) = crate::house::$store() {
                    crate::$room::$promise(&house);
                }
            })*)*
        }
    };
}

stores! {
    sqlite, redis: {
        enqueueing {
            a_job_comes_out_as_it_went_in,
            jobs_begin_in_order_of_priority_then_age,
            a_claim_takes_no_more_than_it_wants_and_queues_in_order,
            odd_names_of_queues_are_names,
            a_claim_may_ask_thousands_of_queues,
            a_unique_job_is_there_once_until_it_has_ended,
            within_one_batch_the_first_of_the_same_is_the_one,
            a_completed_job_never_runs_again,
            a_failed_job_is_scheduled_with_its_error_and_dead_at_last,
            a_result_is_kept_for_as_long_as_it_was_asked_for,
            what_is_noted_reaches_people_and_the_next_attempt,
            a_job_that_is_put_back_is_first_in_line_again,
            nobody_settles_what_is_anothers,
        }
        leases {
            a_lapsed_lease_gives_its_jobs_back_once,
            a_lease_that_was_renewed_since_is_not_ended,
            the_first_renewal_takes_the_lease,
            who_holds_leases_is_shown_with_what_they_run,
            a_round_that_comes_late_revives_no_lease,
            a_claim_whose_answer_was_lost_is_given_back_by_the_renewal,
            a_job_whose_runners_all_die_is_dead_in_the_end,
            only_rescues_in_a_row_count,
            who_leaves_holds_nothing,
            one_leads_at_a_time,
            every_job_is_claimed_once_by_many_runners,
            jobs_of_another_program_are_noticed,
        }
        upkeep {
            due_jobs_are_staged_once_and_on_time,
            failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers,
            ended_jobs_are_pruned_by_their_state,
            a_job_is_kept_as_its_own_front_says,
            a_tick_makes_one_job_and_one_that_is_not_later_none,
            an_entry_is_made_known_without_a_job,
            a_schedule_that_is_gone_paused_or_another_makes_no_job,
            schedules_are_kept_changed_and_removed,
            a_schedule_begins_with_its_next_tick,
            a_store_keeps_a_bounded_number_of_schedules,
            a_tick_whose_unique_job_has_not_ended_makes_none,
            of_many_at_once_one_takes_each_tick,
        }
        following {
            a_job_comes_after_those_that_have_to_complete,
            what_has_ended_before_counts,
            results_come_in_order,
            one_that_does_not_complete_cancels_what_comes_after_it,
            a_retry_lets_what_was_cancelled_with_it_wait_again,
            a_job_may_run_whatever_became_of_those_before_it,
            a_job_that_is_deleted_does_not_complete,
            a_job_runs_at_once_if_somebody_wants_it,
            a_job_waits_for_its_time_and_its_key_as_well,
            jobs_come_after_those_of_their_own_batch,
            a_large_batch_has_links_to_what_there_was_already,
            what_does_not_exist_is_refused_with_all_that_goes_along,
            a_job_never_comes_after_itself,
            one_is_released_once_by_ten_thousand,
            what_many_wait_for_is_passed_on_by_and_by,
            an_end_is_passed_on_as_it_was_before_a_change_takes_it_away,
            the_end_of_a_runner_is_passed_on,
            links_go_with_their_jobs,
        }
        operators {
            a_waiting_job_is_cancelled_and_a_running_one_told,
            a_cancelled_job_does_not_run_again,
            a_dead_job_is_retried_by_hand_and_a_scheduled_one_at_once,
            a_job_is_retried_with_other_arguments,
            a_job_that_is_retried_by_hand_has_no_deadline_any_more,
            a_job_is_deleted_unless_it_runs,
            lists_are_filtered_and_newest_first,
            queues_are_counted_by_state,
        }
        limits {
            a_paused_queue_gives_nothing_and_takes_everything,
            a_queue_without_jobs_is_known_for_as_long_as_it_has_a_setting,
            names_that_no_job_may_give_are_no_queues_to_change,
            a_queue_runs_no_more_than_its_limit_over_all_runners,
            jobs_with_a_key_run_as_many_as_their_limit_says,
            a_queue_begins_no_more_than_its_rate,
            many_runners_begin_no_more_than_a_rate,
            a_rate_forgets_what_began_before_the_clock_was_set_back,
            what_had_not_begun_is_no_start_for_a_rate,
            a_key_begins_no_more_than_its_rate,
            each_rate_of_a_key_has_its_own_memory,
            jobs_with_a_key_run_one_at_a_time_in_order,
            a_key_is_free_again_when_its_runner_dies,
            a_key_is_free_again_when_who_waits_with_it_is_cancelled_or_deleted,
        }
    }
}

// The format of Sidekiq keeps neither completed nor cancelled jobs, only the last error of each, no results, no progress, no
// ticks of periodic jobs and no jobs that come after others; its lists have no order of age over all states; and it refuses priorities, keys, unique jobs, keyword arguments and limits.
// What of the other promises it keeps in its own way is in sidekiq.rs.
stores! {
    sidekiq: {
        enqueueing {
            a_claim_takes_no_more_than_it_wants_and_queues_in_order,
            odd_names_of_queues_are_names,
            a_claim_may_ask_thousands_of_queues,
            a_job_that_is_put_back_is_first_in_line_again,
            nobody_settles_what_is_anothers,
        }
        leases {
            a_lapsed_lease_gives_its_jobs_back_once,
            a_lease_that_was_renewed_since_is_not_ended,
            the_first_renewal_takes_the_lease,
            who_holds_leases_is_shown_with_what_they_run,
            a_round_that_comes_late_revives_no_lease,
            a_claim_whose_answer_was_lost_is_given_back_by_the_renewal,
            a_job_whose_runners_all_die_is_dead_in_the_end,
            only_rescues_in_a_row_count,
            who_leaves_holds_nothing,
            one_leads_at_a_time,
            jobs_of_another_program_are_noticed,
        }
        upkeep {
            due_jobs_are_staged_once_and_on_time,
            failure_47_a_hundred_thousand_due_at_once_are_staged_once_by_two_keepers,
        }
        limits {
            a_paused_queue_gives_nothing_and_takes_everything,
            names_that_no_job_may_give_are_no_queues_to_change,
        }
    }
}
