"""Tools that run as jobs."""

import clutch
from clutch import tool


@tool
def report(year: int) -> str:
    """A report on one year."""
    return f"report on {year}"


@tool(retry=5, backoff=0)
def charge(customer: str, fails: int = 0) -> str:
    """Charges a customer, after so many failures of the bank."""
    job = clutch.current_job()
    if job is not None and job.attempt <= fails:
        raise ConnectionError(f"the bank hangs up, attempt {job.attempt}")
    return customer
