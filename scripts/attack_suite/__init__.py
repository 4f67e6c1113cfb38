"""The parts of scripts/attack. Each makes hostile inputs or runs one kind of attack, from a seed."""
