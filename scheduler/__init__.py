"""What is due: retries, schedules, and what a crash left behind. Decides and writes; ringing is left to its caller."""
