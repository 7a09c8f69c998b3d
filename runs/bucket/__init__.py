"""Run directories and inputs in a bucket: objects, copies, leases and mirrors."""
