"""What Clutch is compared with: other pools, servers and job queues, one file each."""
