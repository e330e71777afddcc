"""Pictures and clips: where they lie, how they are decoded, made, fetched and checked. No torch."""
