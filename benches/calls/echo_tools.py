"""The target of Clutch's pools in the bench: the plain functions, as tools."""

import clutch
from benches.calls import plain

echo = clutch.tool(plain.echo)
count_primes = clutch.tool(plain.count_primes)
