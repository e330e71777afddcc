"""From an episode to a page: evaluation, results, statistics, analysis, figures, the report."""
