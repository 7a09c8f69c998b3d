"""What a plan will take: operations, times, prices."""
