"""The parts of `examples/demo.py`: the work, the loads, the servers, the table."""
