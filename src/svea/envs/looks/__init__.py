"""How a world can look: colours, videos, distractions."""
