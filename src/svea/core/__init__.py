"""What every room may use: errors, files, processes, the terminal, the machine, seeds, words."""
