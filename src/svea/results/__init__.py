"""From runs to results: groups over seeds, their numbers, and what to know about them."""
