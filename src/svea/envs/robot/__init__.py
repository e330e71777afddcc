"""The Kinova Gen3 tasks and their 25 test worlds."""
