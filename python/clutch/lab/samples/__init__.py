"""The work of the presets: what the published experiments ran."""
