"""Pictures of agents at work: videos, contact sheets, saliency."""
